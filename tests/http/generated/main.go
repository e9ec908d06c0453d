// Works jobs with a client that a generator has made. Prints what it saw as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	ojs "generated/client"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	where := ojs.NewConfiguration()
	where.Servers = ojs.ServerConfigurations{{URL: os.Getenv("OJS_URL")}}
	http := ojs.NewAPIClient(where)
	ctx := context.WithValue(context.Background(), ojs.ContextAccessToken, os.Getenv("OJS_API_KEY"))

	options := ojs.NewJobOptions()
	options.SetPriority(5)
	options.SetTags([]string{"a"})
	retry := ojs.NewRetryRequest()
	retry.SetMaxAttempts(1)
	options.SetRetry(*retry)
	request := ojs.NewJobRequest("email.send", []interface{}{map[string]interface{}{"to": "ada"}, 1})
	request.SetOptions(*options)
	pushed, _, err := http.JobsAPI.PushJob(ctx).JobRequest(*request).Execute()
	check(err)
	batch := ojs.NewBatchRequest([]ojs.JobRequest{*ojs.NewJobRequest("fails", []interface{}{})})
	many, _, err := http.JobsAPI.PushJobs(ctx).BatchRequest(*batch).Execute()
	check(err)
	wanted := ojs.NewFetchRequest()
	wanted.SetQueues([]string{"default"})
	wanted.SetCount(2)
	wanted.SetWorkerId("w")
	fetched, _, err := http.WorkersAPI.FetchJobs(ctx).FetchRequest(*wanted).Execute()
	check(err)
	first, second := fetched.Jobs[0], fetched.Jobs[1]
	beat := ojs.NewWorkerBeat("w")
	beat.SetActiveJobs([]string{first.Id, second.Id})
	_, _, err = http.WorkersAPI.Beat(ctx).WorkerBeat(*beat).Execute()
	check(err)
	half := ojs.NewProgressRequest()
	half.SetProgress(0.5)
	half.SetData(map[string]interface{}{"rows": 1})
	progress, _, err := http.WorkersAPI.ReportJobProgress(ctx, first.Id).ProgressRequest(*half).Execute()
	check(err)
	ack := ojs.NewAckRequest(first.Id)
	ack.SetWorkerId("w")
	ack.SetRun(first.GetRun())
	ack.SetResult(map[string]interface{}{"sent": true})
	acked, _, err := http.WorkersAPI.AckJob(ctx).AckRequest(*ack).Execute()
	check(err)
	failure := ojs.NewFailure()
	failure.SetType("Boom")
	failure.SetMessage("it broke")
	failure.SetRetryable(false)
	outcome := ojs.NewFailureOfJob()
	outcome.SetError(*failure)
	outcome.SetWorkerId("w")
	failed, _, err := http.WorkersAPI.NackJobByPath(ctx, second.Id).FailureOfJob(*outcome).Execute()
	check(err)
	ended, _, err := http.JobsAPI.GetJob(ctx, first.Id).Execute()
	check(err)
	listed, _, err := http.EventsAPI.ReadEvents(ctx).Limit(1).Execute()
	check(err)
	step := ojs.NewWorkflowPart("a")
	step.SetArgs([]interface{}{})
	nested := ojs.NewWorkflowPart("group")
	member := map[string]interface{}{"type": "b", "args": []interface{}{}}
	nested.AdditionalProperties = map[string]interface{}{"jobs": []interface{}{member}}
	chain := ojs.NewWorkflowRequest()
	chain.SetType("chain")
	chain.SetId("order-1")
	chain.SetSteps([]ojs.WorkflowPart{*step, *nested})
	created, _, err := http.WorkflowsAPI.CreateWorkflow(ctx).WorkflowRequest(*chain).Execute()
	check(err)
	worker, _, err := http.AdminAPI.GetWorker(ctx, "w").Execute()
	check(err)
	wrong := ojs.NewJobRequest("Email", []interface{}{})
	_, _, err = http.JobsAPI.PushJob(ctx).JobRequest(*wrong).Execute()
	rejected := err.(*ojs.GenericOpenAPIError).Model().(ojs.ErrorResponse).Error.Code

	job := pushed.GetJob()
	result := ended.Job
	cause := failed.Job.GetError()
	out, err := json.Marshal(map[string]interface{}{
		"pushed":   []interface{}{job.Id, job.State, job.Priority},
		"many":     []interface{}{many.Count, many.Jobs[0].Type},
		"fetched":  []interface{}{first.Id, first.Args, second.Type},
		"progress": progress.GetProgress(),
		"acked":    []interface{}{acked.State, acked.Acknowledged},
		"failed":   []interface{}{failed.State, cause.GetType()},
		"ended":    []interface{}{result.State, result.GetResult()},
		"listed":   listed.HasMore,
		"workflow": []interface{}{created.GetClientId(), created.Steps[1].Jobs[0].Type},
		"worker":   worker.Id,
		"rejected": rejected,
	})
	check(err)
	fmt.Println(string(out))
}
