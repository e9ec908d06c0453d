-- Takes or renews a lease, for so many seconds, unless another holder has it.
--
-- A lease with more time left than twice its term was taken before the clock was set back.
UPDATE ojs_lease SET holder = %(holder)s,
    until = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('+%%.3f seconds', %(term)s))
WHERE name = %(name)s
  AND (holder = %(holder)s OR until <= {now}
       OR until > strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('+%%.3f seconds', 2 * %(term)s)))
