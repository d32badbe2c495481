/**
 * The tests of other controllers' queues, each with the law of this repository that states the same. Where a queue
 * outside of the process cannot keep a law, the law that holds instead is named: docs/decisions/0011-conformance.md has
 * the reason. What has no counterpart is not here: leader election and its warm-up, Result.Priority, a debounce period.
 */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

type Laws = Record<string, readonly [file: string, law: string]>

const law = (file: string) => (title: string) => [file, title] as const
const laws = law('queue/laws')
const lanes = law('queue/lanes')
const timers = law('queue/timers')
const runs = law('dispatch/runs')
const serving = law('dispatch/serving')
const pure = law('queue/pure')

const BURST = laws('for every key of a burst')
const CHANGED_DURING_RUN = laws('for a change that comes the moment a run has begun')
const ONE_OWNER = laws('with workers of two processes, both lanes, and runs that end in any way')
const ONE_RUN_MORE = laws('exactly one, however often it became dirty (lane %s)')
const ON_TIME = laws('fires on time, not before, and says so')
const CHANGE_WINS = laws('a change wins over the timer: the key runs at once, and the run arms its own')
const IN_PLACE = laws('however often it is enqueued, and whoever does it')
const ATTEMPTS = laws('errors are counted and retried later each time; a success starts anew')
const COUNTED_ONCE = laws('an observer counts each add, take and end once, and nothing after the drain')
const DRAIN_WAITS = laws(
  'waits for what runs; a second drain with less grace ends the first, and an idle worker stops at once',
)
const HANDED_BACK = laws('lets runs end, takes nothing more, and hands back what does not end in time')
const ALL_SLOTS = lanes('all %i are used by changes alone, and no more are taken from the server')
const CHANGES_FIRST = lanes(
  'a change of a key in the low lane goes before all of that lane, and the key runs once more at most',
)
const QUARTER = lanes('of %i: a permanent stream of changes lets the low lane have a quarter')
const ONE_TIMER = timers('is one per key: whatever its runs have asked for before, one record is left')
const DUE = timers('that is due is one key in the queue, before initial lists, in the order of the times')
const BACKOFF = pure('doubles from the initial delay to the longest')
const POISON = ['queue/failure', 'that fails for ever delays no other, in either lane'] as const
const SCALES = [
  'queue/scale',
  'from 1 to 8 processes and back under load no key is run twice at a time, and no run is cut off',
] as const
const HANGS = serving('keeps a function that hangs to its time-out, and others going')
const BROKEN_STEP = ['queue/ambiguous', '$step, the key being $scene, $lost lost'] as const

/** k8s.io/client-go/util/workqueue */
const WORKQUEUE: Laws = {
  TestBasic: BURST,
  TestAddWhileProcessing: CHANGED_DURING_RUN,
  TestLen: IN_PLACE,
  TestReinsert: ONE_RUN_MORE,
  TestCollapse: IN_PLACE,
  TestCollapseWhileProcessing: ONE_RUN_MORE,
  TestQueueDrainageUsingShutDownWithDrain: SCALES,
  TestNoQueueDrainageUsingShutDown: HANDED_BACK,
  TestForceQueueShutdownUsingShutDown: DRAIN_WAITS,
  TestQueueDrainageUsingShutDownWithDrainWithDirtyItem: laws(
    'leaves a key that changes meanwhile to whoever serves next',
  ),
  TestGarbageCollection: laws('a lease whose run has ended is released from memory'),
  TestSimpleQueue: ON_TIME,
  TestDeduping: ONE_TIMER,
  TestAddTwoFireEarly: DUE,
  TestCopyShifting: DUE,
  TestItemExponentialFailureRateLimiter: BACKOFF,
  TestItemExponentialFailureRateLimiterOverFlow: BACKOFF,
  TestWithMaxWaitRateLimiter: BACKOFF,
  TestRateLimitingQueue: ATTEMPTS,
  TestItemFastSlowRateLimiter: ATTEMPTS,
  TestMaxOfRateLimiter: ATTEMPTS,
  TestMetrics: COUNTED_ONCE,
  TestMetricShutdown: COUNTED_ONCE,
}

/** sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue */
const PRIORITY_QUEUE: Laws = {
  'returns an item': BURST,
  'returns items in order': IN_PLACE,
  'de-duplicates items': IN_PLACE,
  'returns many items': BURST,
  'retains the highest priority': CHANGES_FIRST,
  'will not decrease the priority of an item': CHANGES_FIRST,
  'gets pushed to the front if the priority increases': CHANGES_FIRST,
  'follows FIFO order when item priority changes': CHANGES_FIRST,
  TestHighPriorityItemsAreReturnedBeforeLowPriorityItemMultipleTimes: QUARTER,
  'doesn’t return an item that is currently locked': ONE_OWNER,
  'returns an item as soon as its unlocked': ONE_RUN_MORE,
  'enqueues a locked item': ONE_RUN_MORE,
  'retains the lowest after duration': CHANGE_WINS,
  TestWaitingItemIsReturnedRightAfterReadWithoutAfter: CHANGE_WINS,
  TestItemIsReturnedAsSoonAsPossible: CHANGE_WINS,
  'doesn’t include non-ready items in Len()': DUE,
  TestItemsAreInludedInLenAndMetricsOnceTheyAreReady: DUE,
  TestMetricsAreUpdatedForItemWhoseRequeueAfterExpiredThatGetsAddedAgainWithoutRequeueAfter: DUE,
  TestItemIsOnlyReturnedAfterAfterHasPassed: ON_TIME,
  TestMultipleItemsWithAfterAreReturnedInCorrectOrder: DUE,
  TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem: DUE,
  TestWhenAddingMultipleItemsWithRatelimitTrueTheyDontAffectEachOther: POISON,
  TestGetFromPriorityQueueIsUnblockedOnShutdown: DRAIN_WAITS,
  'does not get stuck when the queue is shut down': DRAIN_WAITS,
  TestPriorityQueueDoesNotDeadlockOnShutdownWhileHandingOutItems: SCALES,
  TestFuzzPriorityQueue: ONE_OWNER,
}

/** sigs.k8s.io/controller-runtime/pkg/internal/controller; the last three are named there and not written. */
const CONTROLLER: Laws = {
  'should call Reconciler if an item is enqueued': runs(
    'creates what is wanted and writes the status, in one run; the next one sends nothing',
  ),
  'should recover panic if RecoverPanic is true by default': ['queue/failure', 'may throw anything: %j'],
  'should time out if ReconciliationTimeout is set': HANGS,
  reconcile_timeouts: HANGS,
  'reconcile_timeouts: user cancels, completes': [
    'dispatch/function-calls',
    'a call that fails because its signal was aborted says why that was',
  ],
  'reconcile_timeouts: parent cancelled': serving('hands back what has not ended when it drains'),
  'should requeue a Request if there is an error and continue processing items': runs(
    'of a function that throws or hangs is one of that run only',
  ),
  'should not requeue a Request if there is a terminal error': runs(
    'that is terminal is shown on the object and not retried until something changes',
  ),
  'should not reset backoff until there’s a non-error result': ATTEMPTS,
  'should requeue a Request after a duration without rate limitting': [
    'queue/transitions',
    '%s arms one timer in the place of the lease',
  ],
  'should perform error behavior if error is not nil, regardless of RequeueAfter': runs(
    'of a function that throws or hangs is one of that run only',
  ),
  'should retain the priority when there was an error': [
    'queue/transitions',
    'a timer that was asked for is urgent, a failed run stays in its lane',
  ],
  'should error when it is started twice': ONE_OWNER,
  'should not call Reconcile until all event handlers have processed initial objects': serving(
    'is not served before everything of its resources has been stored for it',
  ),
  'should wait for informers to be synced before processing items': serving(
    'is not served before everything of its resources has been stored for it',
  ),
  'should create a new go routine for MaxConcurrentReconciles': ALL_SLOTS,
  'should return if the queue is shutdown': serving('hands back what has not ended when it drains'),
}

/** kube_runtime: scheduler, runner and applier */
const KUBE_RS: Laws = {
  scheduler_should_hold_and_release_items: ON_TIME,
  scheduler_should_not_reschedule_pending_items: IN_PLACE,
  scheduler_should_dedup_message_within_debounce_period: IN_PLACE,
  scheduler_pending_message_should_not_block_head_of_line: laws('and holds up none of the keys behind it'),
  scheduler_dedupe_should_keep_earlier_item: CHANGE_WINS,
  scheduler_dedupe_should_replace_later_item: ONE_TIMER,
  runner_should_never_run_two_instances_at_once: ONE_OWNER,
  runner_should_respect_max_concurrent_executions: ALL_SLOTS,
  runner_should_wait_for_readiness: serving('is not served before everything of its resources has been stored for it'),
  applier_must_not_deadlock_if_reschedule_buffer_fills: CHANGED_DURING_RUN,
  reflect_applies_backpressure: ALL_SLOTS,
  idle_timeout_returns_none_on_dead_connection: BROKEN_STEP,
}

it.each(Object.entries({ ...WORKQUEUE, ...PRIORITY_QUEUE, ...CONTROLLER, ...KUBE_RS }))(
  '%s is a law of this repository',
  (_, [file, title]) => {
    expect(readFileSync(new URL(`../${file}.test.ts`, import.meta.url), 'utf8')).toContain(`'${title}'`)
  },
)
