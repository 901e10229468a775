"""The context engines that come with perdure, and what they share."""
