-- The functions and procedures of django_ojs.
SELECT DISTINCT proname FROM pg_proc WHERE starts_with(proname, 'ojs_') AND pg_function_is_visible(oid)
