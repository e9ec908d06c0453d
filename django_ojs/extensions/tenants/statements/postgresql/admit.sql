-- Whether a tenant has room for jobs in a queue, without its lock (see ojs_admit_tenant).
SELECT ojs_admit_tenant(%(queue)s, %(tenant)s, %(jobs)s, %(bound)s)
