"""Operations on very many jobs, in the background."""
