-- Takes or renews a lease, for so many seconds, unless another holder has it.
--
-- A lease with more time left than twice its term was taken before the clock was set back.
UPDATE ojs_lease SET holder = %(holder)s,
    until = statement_timestamp() + %(term)s * interval '1 second'
WHERE name = %(name)s
  AND (holder = %(holder)s OR until <= statement_timestamp()
       OR until > statement_timestamp() + 2 * %(term)s * interval '1 second')
