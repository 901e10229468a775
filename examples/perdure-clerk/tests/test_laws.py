from perdure_clerk.attached import engine

from perdure.testing.engines import EngineLaws

laws = EngineLaws(engine)
