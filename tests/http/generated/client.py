# Works jobs with a client that a generator has made. Prints what it saw as one line of JSON.
import json
import os
import sys

sys.path.insert(0, os.environ["GENERATED"])

import openapi_client as ojs

where = ojs.Configuration(host=os.environ["OJS_URL"], access_token=os.environ["OJS_API_KEY"])
with ojs.ApiClient(where) as http:
    jobs, workers = ojs.JobsApi(http), ojs.WorkersApi(http)

    options = ojs.JobOptions(priority=5, tags=["a"], retry=ojs.RetryRequest(max_attempts=1))
    request = ojs.JobRequest(type="email.send", args=[{"to": "ada"}, 1], options=options)
    pushed = jobs.push_job(request).job
    many = jobs.push_jobs(ojs.BatchRequest(jobs=[ojs.JobRequest(type="fails", args=[])]))
    queues = ojs.FetchRequest(queues=["default"], count=2, worker_id="w")
    first, second = workers.fetch_jobs(queues).jobs
    workers.beat(ojs.WorkerBeat(worker_id="w", active_jobs=[first.id, second.id]))
    half = ojs.ProgressRequest(progress=0.5, data={"rows": 1})
    progress = workers.report_job_progress(first.id, half).progress
    claim = {"worker_id": "w", "run": first.run}
    acked = workers.ack_job(ojs.AckRequest(job_id=first.id, result={"sent": True}, **claim))
    error = ojs.Failure(type="Boom", message="it broke", retryable=False)
    failed = workers.nack_job_by_path(second.id, ojs.FailureOfJob(error=error, worker_id="w"))
    ended = jobs.get_job(first.id).job
    listed = ojs.EventsApi(http).read_events(limit=1).has_more
    nested = ojs.WorkflowPart.from_dict({"type": "group", "jobs": [{"type": "b", "args": []}]})
    steps = [ojs.WorkflowPart(type="a", args=[]), nested]
    created = ojs.WorkflowsApi(http).create_workflow(
        ojs.WorkflowRequest(type="chain", id="order-1", steps=steps)
    )
    worker = ojs.AdminApi(http).get_worker("w")
    try:
        jobs.push_job(ojs.JobRequest.model_construct(type="Email", args=[]))
    except ojs.ApiException as raised:
        rejected = ojs.ErrorResponse.from_json(raised.body).error.code

print(
    json.dumps(
        {
            "pushed": [pushed.id, pushed.state, pushed.priority],
            "many": [many.count, many.jobs[0].type],
            "fetched": [first.id, first.args, second.type],
            "progress": progress,
            "acked": [acked.state, acked.acknowledged],
            "failed": [failed.state, failed.job.error.type],
            "ended": [ended.state, ended.result],
            "listed": listed,
            "workflow": [created.client_id, created.workflow.steps[1].jobs[0].type],
            "worker": worker.id,
            "rejected": rejected,
        }
    )
)
