// Works jobs with a client that a generator has made. Prints what it saw as one line of JSON.
import * as ojs from "./client/index";

declare const process: { env: Record<string, string> };

async function main(): Promise<void> {
  const where = new ojs.Configuration({
    basePath: process.env.OJS_URL,
    accessToken: process.env.OJS_API_KEY,
  });
  const jobs = new ojs.JobsApi(where);
  const workers = new ojs.WorkersApi(where);

  const pushed = await jobs.pushJob({
    jobRequest: {
      type: "email.send",
      args: [{ to: "ada" }, 1],
      options: { priority: 5, tags: ["a"], retry: { maxAttempts: 1 } },
    },
  });
  const many = await jobs.pushJobs({ batchRequest: { jobs: [{ type: "fails", args: [] }] } });
  const fetched = await workers.fetchJobs({
    fetchRequest: { queues: ["default"], count: 2, workerId: "w" },
  });
  const [first, second] = fetched.jobs;
  await workers.beat({ workerBeat: { workerId: "w", activeJobs: [first.id, second.id] } });
  const progress = await workers.reportJobProgress({
    key: first.id,
    progressRequest: { progress: 0.5, data: { rows: 1 } },
  });
  const acked = await workers.ackJob({
    ackRequest: { jobId: first.id, workerId: "w", run: first.run, result: { sent: true } },
  });
  const failed = await workers.nackJobByPath({
    key: second.id,
    failureOfJob: {
      workerId: "w",
      error: { type: "Boom", message: "it broke", retryable: false },
    },
  });
  const ended = await jobs.getJob({ key: first.id });
  const listed = await new ojs.EventsApi(where).readEvents({ limit: 1 });
  const created = await new ojs.WorkflowsApi(where).createWorkflow({
    workflowRequest: {
      type: "chain",
      id: "order-1",
      steps: [
        { type: "a", args: [] },
        { type: "group", jobs: [{ type: "b", args: [] }] },
      ],
    },
  });
  const worker = await new ojs.AdminApi(where).getWorker({ key: "w" });
  let rejected = "";
  try {
    await jobs.pushJob({ jobRequest: { type: "Email", args: [] } });
  } catch (raised) {
    rejected = (await (raised as ojs.ResponseError).response.json()).error.code;
  }

  console.log(
    JSON.stringify({
      pushed: [pushed.job?.id, pushed.job?.state, pushed.job?.priority],
      many: [many.count, many.jobs[0]?.type],
      fetched: [first.id, first.args, second.type],
      progress: progress.progress,
      acked: [acked.state, acked.acknowledged],
      failed: [failed.state, failed.job.error?.type],
      ended: [ended.job.state, ended.job.result],
      listed: listed.hasMore,
      workflow: [created.clientId, created.workflow.steps?.[1].jobs?.[0].type],
      worker: worker.id,
      rejected,
    }),
  );
}

main();
