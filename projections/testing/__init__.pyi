from projections.testing.trial import (
    ViewTrial as ViewTrial,
    ViewsDiffer as ViewsDiffer,
)
