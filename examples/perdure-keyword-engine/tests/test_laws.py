from perdure_keyword_engine import KeywordEngine

from perdure.testing.engines import EngineLaws

laws = EngineLaws(KeywordEngine)
