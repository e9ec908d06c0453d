-- Takes or renews a lease, for so many seconds, unless another holder has it.
--
-- A lease with more time left than twice its term was taken before the clock was set back.
UPDATE ojs_lease SET holder = %(holder)s,
    until = {now} + INTERVAL %(term)s * 1000000 MICROSECOND
WHERE name = %(name)s
  AND (holder = %(holder)s OR until <= {now}
       OR until > {now} + INTERVAL 2 * %(term)s * 1000000 MICROSECOND)
