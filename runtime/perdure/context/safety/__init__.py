"""The steps that make any history acceptable to a provider. Not pluggable."""
