import { stripVTControlCharacters, styleText } from 'node:util'
import { describe, expect, it } from 'vitest'
import type { ResourceRef, RunRecord, RunResult } from '#contracts'
import type { EventsView, RunsView } from '#events'
import type { ExistingStreams, Row as InspectRow, LastRun, Situation } from '#inspect'
import { colored, explain, jsonOf, pageOf } from '#inspect'
import type { KubeClient } from '#kube'
import { UnknownOutcomeError } from '#nats'
import { lastBlocked, lastRunsOf } from '../../cli/inspect/explain/facts.ts'
import { gather, quietMsOf } from '../../cli/inspect/explain/gather.ts'
import type { BlockedRuns } from '../../cli/inspect/explain/situation.ts'
import { ago, ahead, type Given, NOW, reconciler, relative, row, served, situation, website } from './situations.ts'

type Said = [type: string, status: string, reason: string, message: string]
type Row = [situation: Given<Situation>, reason: string, next: string]

const FINALIZER = 'fairlead.dev/website'
const failing = (reason: string, message = 'it says why'): Given<Situation> => ({
  object: website({}, [['Reconciled', 'False', reason, message]]),
  reconcilers: [
    served({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 3, until: ahead(12), error: message })] }),
  ],
})
const one = (given: Parameters<typeof served>[0]): Given<Situation> => ({ reconcilers: [served(given)] })
const spec = (given: object, said: Parameters<typeof reconciler>[1] = []) => one({ object: reconciler(given, said) })
const inShard = (shard: string, said: Parameters<typeof reconciler>[1] = []) => ({
  ...reconciler({}, said),
  metadata: { name: 'website', labels: { 'fairlead.dev/shard': shard } },
})
const THROWN = 'TypeError at src/website.ts:12:5: no such field'
const IN_A_FOLDER = 'TypeError at my src/website.ts:12:5: no such field'
const BLOCKED = 'Blocked at my src/website.ts:7:3: the function has blocked its process for longer than 5 s'
const LOOPS = 'Blocked at my src/website.ts:7:3: the function did not finish within 60 s'
const PUT_OFF = row({
  state: 'waiting',
  reason: 'Error',
  until: ahead(9),
  error: 'the function is not called yet: its run for shop/a has ended or blocked its process',
})
const denied = (resource: string, group: string) =>
  `cannot apply X default/web: ${resource} is forbidden: User "system:serviceaccount:fairlead-system:fairlead-website" cannot create resource "${resource}" in API group "${group}" in the namespace "default"`
const ran = (more: Partial<LastRun> = {}): LastRun => ({
  run: 9,
  endedAt: ago(60),
  tookMs: 20,
  waitedMs: 2,
  result: 'error',
  because: 'modified Website default/hello',
  writes: [],
  refused: [],
  unchanged: [],
  declared: [],
  ...more,
})
const RECORD = {
  startedAt: ago(60),
  endedAt: ago(60),
  queuedAt: ago(60),
  attempt: 0,
  laps: [],
} as unknown as RunRecord
const timer = (more: Parameters<typeof served>[0]): Given<Situation> =>
  one({ rows: [row({ state: 'waiting', reason: 'Requeue', until: ahead(3600) })], ...more })
const going = (finalizers: string[]) => website({ deletionTimestamp: ago(60), finalizers })

/** The situation, the reason of the first finding, and a text in the next step. */
const SITUATIONS: Record<string, Row> = {
  'no Reconciler is for the kind': [{ reconcilers: [] }, 'NoReconciler', 'fairlead install -f FILE'],
  'it belongs to an object that is reconciled': [
    { reconcilers: [], object: website({ ownerReferences: [{ controller: true, kind: 'Shop', name: 's' }] }) },
    'NoReconciler',
    'fairlead explain shop/s -n default',
  ],
  'its definition is gone': [{ isKindServed: false, object: undefined }, 'KindNotServed', 'fairlead install -f FILE'],
  'it does not exist': [{ object: undefined }, 'NotFound', 'kubectl get websites.example.com -A'],
  'it is in another namespace': [
    { object: undefined, elsewhere: ['shop/hello'] },
    'NotFound',
    'fairlead explain websites/hello -n shop',
  ],
  'the Reconciler is refused': [spec({ timeoutSeconds: 0 }), 'InvalidSpec', 'kubectl edit reconciler website'],
  'the Reconciler is paused': [
    spec({ paused: true }, [['Ready', 'False', 'Paused']]),
    'ReconcilerPaused',
    `kubectl patch reconciler website --type merge -p '{"spec":{"paused":false}}'`,
  ],
  'an older Reconciler has its identity': [
    spec({}, [['Ready', 'False', 'IdentityTaken', 'kubectl delete reconciler old']]),
    'IdentityTaken',
    'kubectl delete reconciler old',
  ],
  'EVENTS does not have the Reconciler': [
    spec({}, [['Ready', 'False', 'NotInEvents']]),
    'NotInEvents',
    'fairlead bridge',
  ],
  'its function over HTTP does not answer': [
    spec({ invoke: { http: { url: 'http://f' } } }, [['Ready', 'False', 'FunctionUnreachable', 'refused']]),
    'FunctionUnreachable',
    'Start the server of the function',
  ],
  'no bridge has taken the Reconciler up': [spec({}, [['Synced', 'absent']]), 'NotWatched', 'fairlead bridge'],
  'no bridge of its shard has taken the Reconciler up': [
    one({ object: inShard('b', [['Synced', 'absent']]) }),
    'NotWatched',
    'fairlead bridge --shard b',
  ],
  'its shard has not taken the Reconciler up after the former one': [
    one({ object: inShard('b', [['Synced', 'False', 'Released']]) }),
    'Released',
    'fairlead bridge --shard b',
  ],
  'its former shard has not released the Reconciler': [
    spec({}, [['Synced', 'False', 'HeldByShard']]),
    'HeldByShard',
    'Wait until the former shard has ended its runs',
  ],
  'clients of another version cannot read it': [
    { webhook: { versions: [{ version: 'v1beta1', isPart: false, why: 'conversion webhook failed: refused' }] } },
    'VersionUnreadable',
    'kubectl -n fairlead-system get pods -l app.kubernetes.io/name=webhooks',
  ],
  'the webhook does not answer, so changes are refused': [
    { webhook: { versions: [], unasked: 'connection refused' } },
    'ChangesRefused',
    'Look why the webhook does not answer',
  ],
  'another shard serves it': [
    one({ object: inShard('b'), isElsewhere: true, rows: undefined, isServed: undefined }),
    'OtherShard',
    'fairlead explain websites/hello -n default --shard b',
  ],
  'a bridge may not watch': [
    spec({}, [['Synced', 'False', 'Forbidden', 'list of websites']]),
    'Forbidden',
    'fairlead install -f FILE',
  ],
  'an owned kind is not served': [
    spec({}, [['Synced', 'False', 'ResourceNotFound', 'deployments']]),
    'ResourceNotFound',
    'fairlead install -f FILE',
  ],
  'a watch is rejected': [spec({}, [['Synced', 'False', 'Rejected', 'field label']]), 'Rejected', 'bridge tries again'],
  'nothing is prepared for it': [
    spec({}, [['Synced', 'False', 'NotPrepared', 'NATS']]),
    'NotPrepared',
    'log of the bridge',
  ],
  'its kinds are being listed': [spec({}, [['Synced', 'False', 'Listing', 'websites']]), 'Listing', 'Wait'],
  'no dispatcher has ever served it': [
    one({ object: reconciler({}, [['Ready', 'absent']]), isServed: false, rows: [row({ state: 'queued' })] }),
    'Unserved',
    'fairlead dispatch -f FILE',
  ],
  'the dispatchers have gone': [one({ isServed: false }), 'Unserved', 'fairlead dispatch -f FILE'],
  'no bridge watches any more': [one({ quietMs: 720_000 }), 'Unwatched', 'fairlead bridge'],
  'no process of Fairlead runs': [one({ isServed: false, quietMs: 720_000 }), 'Unserved', 'fairlead up -f FILE'],
  'no label of it matches the selector': [
    spec({ for: { ...reconcilerFor(), selector: 'tier in (gold, silver)' } }),
    'Unselected',
    'kubectl label --overwrite websites.example.com hello -n default tier=gold',
  ],
  'it has a label that it must not have': [
    {
      ...spec({ for: { ...reconcilerFor(), selector: '!legacy' } }),
      object: website({ labels: { legacy: '1' } }),
    },
    'Unselected',
    'kubectl label --overwrite websites.example.com hello -n default legacy-',
  ],
  'its namespace is not selected': [
    spec({ for: { ...reconcilerFor(), namespaces: ['shop'] } }),
    'Unselected',
    'fairlead install -f FILE',
  ],
  'its fields are not selected': [
    spec({ for: { ...reconcilerFor(), fieldSelector: 'metadata.name=other' } }),
    'Unselected',
    'kubectl edit websites.example.com hello -n default',
  ],
  'the object is paused': [
    { object: website({ annotations: { 'fairlead.dev/paused': 'true' } }) },
    'Paused',
    'kubectl annotate websites.example.com hello -n default fairlead.dev/paused-',
  ],
  'its namespace is being deleted': [
    { isNamespaceTerminating: true },
    'NamespaceTerminating',
    `kubectl get namespace default -o jsonpath='{.status.conditions}'`,
  ],
  'it waits for the finalizer of a Reconciler that is gone': [
    { object: going(['fairlead.dev/old']), reconcilers: [] },
    'FinalizerOrphaned',
    'kubectl patch websites.example.com hello -n default --type json',
  ],
  'it waits for its finalize': [{ object: going([FINALIZER]) }, 'Finalizing', 'Wait until the function has cleaned up'],
  'it waits for its finalize, beside a pod that cannot run': [
    {
      object: {
        ...going([FINALIZER]),
        status: website({}, [['Ready', 'False', 'Deleting']]).status,
      },
      ...one({ owned: [relative('Pod', 'backup', { phase: 'Failed', reason: 'Evicted' })] }),
    },
    'Finalizing',
    'Wait until the function has cleaned up',
  ],
  'it waits for a former finalizer that its function removes': [
    { object: going(['example.com/old']), ...spec({ formerFinalizers: ['example.com/old'] }) },
    'Finalizing',
    'Wait until the function has cleaned up',
  ],
  'its finalize fails, and somebody else has a finalizer': [
    {
      object: going([FINALIZER, 'example.com/dns']),
      ...one({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 2, until: ahead(3), error: 'no route' })] }),
    },
    'Retrying',
    'fairlead queue retry website default/hello',
  ],
  'its finalize fails': [
    {
      object: going([FINALIZER]),
      ...one({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 2, until: ahead(3), error: 'no route' })] }),
    },
    'Retrying',
    'fairlead queue retry website default/hello',
  ],
  'it waits for a finalizer of somebody else': [
    { object: going(['example.com/dns']) },
    'FinalizerOfOthers',
    'See to the controller that removes example.com/dns',
  ],
  'it waits for what it owns': [{ object: going(['foregroundDeletion']) }, 'DeletingDependents', 'garbage collector'],
  'no bridge has seen it': [{ storedVersion: undefined }, 'NotInEvents', 'fairlead bridge'],
  'the bridge is behind': [{ storedVersion: '5' }, 'BridgeBehind', 'fairlead bridge'],
  'there is a dead letter of it': [
    { letters: [{ id: 3, reconciler: 'website', reason: 'unknown-reconciler', detail: 'gone' }] },
    'DeadLetter',
    'fairlead dead replay 3',
  ],
  'the Reconciler writes nothing': [
    spec({ dryRun: true }),
    'DryRun',
    `kubectl patch reconciler website --type merge -p '{"spec":{"dryRun":false}}' && fairlead queue run website default/hello`,
  ],
  'a right is missing': [
    one({
      missingRights: ['create deployments.apps'],
      lastRun: ran({ refused: [{ write: 'apply Deployment web', error: denied('deployments', 'apps') }] }),
    }),
    'RightsMissing',
    'fairlead install -f FILE',
  ],
  'its key failed for good': [
    { ...one({ rows: [row({ state: 'parked', reason: 'Terminal', error: 'spec.size is -1' })] }) },
    'Parked',
    'kubectl edit websites.example.com hello -n default',
  ],
  'its key failed for good by an outcome that is not valid': [
    {
      object: website({}, [['Reconciled', 'False', 'InvalidOutcome', 'apply.0']]),
      ...one({ rows: [row({ state: 'parked', reason: 'Terminal', error: 'apply.0' })] }),
    },
    'InvalidOutcome',
    'fairlead install -f FILE --revision TEXT',
  ],
  'its key was parked by hand': [
    one({ rows: [row({ state: 'parked', reason: 'Withdrawn' })] }),
    'ParkedByHand',
    'fairlead queue retry website default/hello',
  ],
  'its last run could not reach the API server': [
    one({
      rows: [
        row({ state: 'waiting', reason: 'Error', until: ahead(2), error: 'the API server is away: nothing listens' }),
      ],
    }),
    'ApiServerAway',
    'kubectl get --raw /readyz',
  ],
  'etcd of the API server has no space': [
    one({
      rows: [
        row({
          state: 'waiting',
          reason: 'Error',
          until: ahead(2),
          error: 'the API server cannot write, because its store is full: no space',
        }),
      ],
    }),
    'StoreFull',
    'etcdctl alarm list',
  ],
  'its last runs failed': [
    one({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 7, until: ahead(12), error: 'no route' })] }),
    'Retrying',
    'fairlead queue retry website default/hello',
  ],
  'its process was lost again and again': [
    one({ rows: [row({ state: 'waiting', reason: 'CutShort', attempt: 2, until: ahead(12) })] }),
    'RunCutShort',
    'fairlead queue retry website default/hello',
  ],
  'it runs again after it has ended its process': [
    one({ rows: [row({ state: 'running', by: 'vm-1', cutShort: true, since: ago(3), until: ahead(4) })] }),
    'RunCutShort',
    'fairlead queue retry website default/hello',
  ],
  'it is queued again after it has ended its process': [
    one({ rows: [row({ state: 'queued', cutShort: true, position: 1, since: ago(1) })] }),
    'RunCutShort',
    'fairlead queue retry website default/hello',
  ],
  'it has ended its process by a loop': [
    one({
      rows: [row({ state: 'waiting', reason: 'CutShort', attempt: 2, until: ahead(12) })],
      lastRun: ran({ result: 'fenced' }),
      blocked: { runs: 1, message: BLOCKED },
    }),
    'RunCutShort',
    'Correct the function at my src/website.ts:7:3',
  ],
  'the run of another object has ended its process': [
    one({
      rows: [row({ state: 'waiting', reason: 'CutShort', attempt: 2, until: ahead(12) })],
      endedBy: { ...situation().target, namespace: 'shop', name: 'loops', endedAt: ago(20), message: BLOCKED },
    }),
    'RunCutShort',
    'fairlead explain websites.example.com loops -n shop',
  ],
  'it loops in a process of its own, before its condition tells': [
    one({
      rows: [row({ state: 'waiting', reason: 'Error', attempt: 1, until: ahead(12), error: LOOPS })],
      lastRun: ran({ message: LOOPS }),
      blocked: { runs: 3, message: LOOPS },
    }),
    'Retrying',
    'Correct the function at my src/website.ts:7:3',
  ],
  'it is in a process of its own again, after a loop there': [
    one({
      rows: [row({ state: 'running', by: 'vm-1', attempt: 1, since: ago(51), until: ahead(4) })],
      lastRun: ran({ message: LOOPS }),
      blocked: { runs: 5, message: LOOPS },
    }),
    'RunCutShort',
    'Correct the function at my src/website.ts:7:3',
  ],
  'it waits for a process of its own, after a loop': [
    one({ rows: [PUT_OFF], lastRun: ran({ message: PUT_OFF.error }), blocked: { runs: 2, message: BLOCKED } }),
    'Retrying',
    'Correct the function at my src/website.ts:7:3',
  ],
  'it waits for a process of its own, after a loop of another object': [
    one({ rows: [PUT_OFF], lastRun: ran({ message: PUT_OFF.error }) }),
    'Retrying',
    'Mend the function for the object that the error or the log',
  ],
  'it loops in a process of its own': [
    {
      object: website({}, [['Reconciled', 'False', 'RunTimeoutError', LOOPS]]),
      ...one({
        rows: [row({ state: 'waiting', reason: 'Error', attempt: 5, until: ahead(12), error: LOOPS })],
        lastRun: ran({ message: PUT_OFF.error }),
        blocked: { runs: 5, message: LOOPS },
      }),
    },
    'RunTimeoutError',
    'Correct the function at my src/website.ts:7:3',
  ],
  'its function throws': [
    {
      object: website({}, [['Ready', 'Unknown', 'TypeError', `the function fails: ${THROWN}`]]),
      ...one({
        rows: [row({ state: 'waiting', reason: 'Error', attempt: 2, until: ahead(1), error: IN_A_FOLDER })],
        lastRun: ran({ message: IN_A_FOLDER, place: 'TypeError at my src/website.ts:12:5' }),
      }),
    },
    'Retrying',
    'Correct the function at my src/website.ts:12:5',
  ],
  'its function throws on purpose, and quotes the place of another error': [
    one({
      rows: [row({ state: 'waiting', reason: 'Error', attempt: 2, until: ahead(1), error: THROWN })],
      lastRun: ran({ message: THROWN }),
    }),
    'Retrying',
    'Mend the cause that the error names',
  ],
  'its function throws, and no run is recorded': [
    {
      object: website({}, [['Ready', 'Unknown', 'TypeError', `the function fails: ${THROWN}`]]),
      ...one({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 2, until: ahead(1), error: THROWN })] }),
    },
    'Retrying',
    'Correct the function at src/website.ts:12:5',
  ],
  'its function has thrown, and NATS is away': [
    {
      natsAway: 'cannot connect',
      object: website({}, [['Ready', 'Unknown', 'TypeError', `the function fails: ${THROWN}`]]),
      ...one({ rows: undefined, isServed: undefined }),
    },
    'NotReady',
    'Correct the function at src/website.ts:12:5',
  ],
  'it runs': [
    one({ rows: [row({ state: 'running', by: 'vm-1', until: ahead(4) })] }),
    'Running',
    'Wait until the run has ended',
  ],
  'it runs for too long': [
    one({ rows: [row({ state: 'running', by: 'vm-1', since: ago(600), until: ahead(4) })] }),
    'RunningLong',
    'five time-outs',
  ],
  'it is queued': [
    one({ rows: [row({ state: 'queued', position: 3 })] }),
    'Queued',
    'fairlead queue show website default/hello',
  ],
  'it is queued for long': [
    one({ rows: [row({ state: 'queued', position: 900, since: ago(300) })] }),
    'QueuedLong',
    `kubectl patch reconciler website --type merge -p '{"spec":{"concurrency":512}}'`,
  ],
  'it is queued for long because of a rate': [
    one({
      object: reconciler({ runRate: { perSecond: 2 } }),
      rows: [row({ state: 'queued', position: 900, since: ago(300) })],
    }),
    'QueuedByRate',
    'kubectl edit reconciler website',
  ],
  'a change was not answered': [
    { object: website({ generation: 3 }) },
    'ChangeUnanswered',
    'fairlead queue run website default/hello',
  ],
  'an object that it names is missing': [
    { object: website({}, [['Ready', 'False', 'NoConfig']]), ...one({ named: [relative('ConfigMap', 'c')] }) },
    'RelatedMissing',
    'Create it, or name another one',
  ],
  'an owned object has failed': [
    {
      object: website({}, [['Ready', 'False', 'Waiting']]),
      ...one({
        owned: [
          relative('Pod', 'web', {
            phase: 'Pending',
            containerStatuses: [
              { name: 'c', state: { waiting: { reason: 'ImagePullBackOff', message: 'not found' } } },
            ],
          }),
        ],
      }),
    },
    'OwnedFailed',
    'kubectl describe pods web -n default',
  ],
  'an owned object is missing': [
    one({
      lastRun: {
        run: 9,
        endedAt: ago(60),
        tookMs: 20,
        waitedMs: 2,
        result: 'success',
        because: 'changed Website default/hello',
        writes: ['apply Deployment web'],
        refused: [],
        unchanged: [],
        declared: [{ kind: 'Deployment', namespace: 'default', name: 'web' }],
      },
    }),
    'OwnedMissing',
    'fairlead queue run website default/hello',
  ],
  'an owned object is on its way': [
    {
      object: website({}, [['Ready', 'False', 'Waiting']]),
      ...one({ owned: [relative('Deployment', 'web', { replicas: 1 })] }),
    },
    'OwnedProgressing',
    'kubectl describe deployments.apps web -n default',
  ],
  'its function says that it is not ready': [
    { object: website({}, [['Ready', 'False', 'NoLicence', 'buy one']]) },
    'NotReady',
    'follow its message',
  ],
  'NATS is away': [
    { natsAway: 'cannot connect', ...one({ rows: undefined, isServed: undefined }) },
    'NatsAway',
    'fairlead queue ls',
  ],
  'NATS is away and the cause is known all the same': [
    { natsAway: 'cannot connect', ...spec({ paused: true }) },
    'ReconcilerPaused',
    'kubectl patch reconciler website',
  ],
  'somebody else sets the same fields again and again': [
    {
      object: website({}, [
        ['Ready', 'True'],
        [
          'Contested',
          'True',
          'FieldConflict',
          'Deployment default/web: "hpa" has changed .spec.replicas; set back 14 times',
        ],
      ]),
    },
    'Contested',
    'leave the field out of what the function returns',
  ],
  'the API server is away': [{ apiAway: 'ECONNREFUSED', isKindServed: undefined }, 'ApiServerAway', 'kubectl version'],
  ...Object.fromEntries(
    [
      ['Forbidden', 'fairlead install -f FILE'],
      ['InvalidObject', 'kubectl edit websites.example.com hello'],
      ['Invalid', 'fairlead queue retry website default/hello'],
      ['NotFound', 'Create what the message names'],
      ['TooLarge', '1.5 MiB'],
      ['QuotaExceeded', 'Raise the quota'],
      ['AdmissionDenied', 'policy'],
      ['AdmissionFailed', 'webhook'],
      ['NameTaken', 'Free the name'],
      ['FieldConflict', 'other keys'],
      ['TooMuchState', 'FAIRLEAD_MAX_STATE_MIB'],
      ['AnswerTooLarge', 'fewer or smaller objects'],
      ['RequestTooLarge', 'fewer related objects'],
      ['KindNotGranted', 'have an administrator grant this one'],
      ['KindNotListed', 'Install the definition'],
      ['UnsettledError', 'must not depend on its own writes'],
      ['RunTimeoutError', 'timeoutSeconds'],
      ['ExternalReadFailed', 'external system'],
      ['MyOwnError', 'Mend what the message names'],
    ].map(([reason = '', next = '']) => [
      `writes or runs fail: ${reason}`,
      [failing(reason), reason, next] satisfies Row,
    ]),
  ),
}

function reconcilerFor() {
  return { group: 'example.com', version: 'v1', resource: 'websites', kind: 'Website' }
}

describe('explain', () => {
  it.each(Object.entries(SITUATIONS))(
    'names the cause first and the step that helps: %s',
    (_, [given, reason, next]) => {
      const { findings, healthy, next: step } = explain(situation(given))
      expect(findings[0]?.reason).toBe(reason)
      expect(healthy).toBe(false)
      expect(`${step?.say} ${step?.command ?? ''}`).toContain(next)
    },
  )

  it('ends with the command that grants the kind that an object names', () => {
    const message =
      'spec.target names Lease.v1.a.io: an administrator grants it by fairlead install --kinds Lease.v1.a.io=PLURAL'
    const object = website({}, [['Reconciled', 'False', 'KindNotGranted', `${message}. Its deletion waits`]])
    const { next } = explain(situation({ object }))
    expect(next?.command).toBe('fairlead install -f FILE --kinds Lease.v1.a.io=PLURAL')
  })

  it('notes that another version shows a healthy object in part', () => {
    const found = { versions: [{ version: 'v1beta1', isPart: true, why: 'down of its conversion fails' }] }
    expect(explain(situation({ webhook: found }))).toMatchObject({
      healthy: true,
      findings: [{ reason: 'ShownInPart', message: 'v1beta1 shows it in part: down of its conversion fails' }],
    })
  })

  it('knows at least 40 situations', () => expect(Object.keys(SITUATIONS).length).toBeGreaterThanOrEqual(40))

  it.each(Object.entries(SITUATIONS))('shows on its page the cause and the step: %s', (_, [given]) => {
    const now = situation(given)
    const explanation = explain(now)
    const page = pageOf(now, explanation)
    const [first] = explanation.findings
    expect(page.split('\n')[0]).toContain(first?.message)
    expect(page).toContain(`Next step: ${explanation.next?.say}`)
    expect(JSON.parse(jsonOf(now, explanation))).toMatchObject({
      healthy: false,
      name: 'hello',
      next: explanation.next,
    })
  })

  it('prints whose a taken name is once, and ends with the command that hands the object over', () => {
    const command = 'kubectl annotate --overwrite deployments.apps web -n shop fairlead.dev/reconciler=website/a1b2'
    const message = `Deployment shop/web exists, but Reconciler website did not create it, although this Website controls it: have the function give what it makes another name, or hand the object over: ${command}`
    const taken = failing('NameTaken', message)
    const event = { type: 'Warning', reason: 'NameTaken', message, count: 4, last: ago(5) }
    const now = situation({
      ...taken,
      object: website({}, [
        ['Reconciled', 'False', 'NameTaken', message],
        ['Ready', 'False', 'NameTaken', `a write was refused: ${message}`],
      ]),
      events: [event],
    })
    const explanation = explain(now)
    const page = pageOf(now, explanation)
    expect(explanation.findings.map(({ reason }) => reason)).toEqual(['NameTaken'])
    expect(page.split('did not create it')).toHaveLength(2)
    expect(page.split('\n').at(-1)?.trim()).toBe(command)
    const several = failing('NameTaken', `${message}; ${message.replaceAll('web', 'api')}`)
    expect(explain(situation(several)).next?.command).toBe(command)
  })

  it.each(Object.entries(SITUATIONS))('has the same words in 80 columns and in color: %s', (_, [given]) => {
    const now = situation(given)
    const explanation = explain(now)
    const page = pageOf(now, explanation, 80)
    expect(page.split(/\s+/)).toEqual(pageOf(now, explanation).split(/\s+/))
    // The command of the next step can be copied.
    const lines = page.split('\n').filter((line) => line.trim() !== explanation.next?.command)
    expect(lines.filter((line) => line.length > 80 && line.trim().includes(' '))).toEqual([])
    const inColor = colored(page, explanation, (format, text) => styleText(format, text, { validateStream: false }))
    expect(inColor).not.toBe(page)
    expect(stripVTControlCharacters(inColor)).toBe(page)
  })

  it.each<[string, Given<Situation>]>([
    ['nothing is wrong', {}],
    ['a timer is set', one({ rows: [row({ state: 'waiting', reason: 'Requeue', until: ahead(3600) })] })],
    ['it has no status', { object: website({}, [], { status: undefined }) }],
    [
      'another Reconciler of the kind does not select it',
      {
        reconcilers: [
          served(),
          served({ object: reconciler({ for: { ...reconcilerFor(), selector: 'x' } }, [], 'other') }),
        ],
      },
    ],
  ])('has three lines for a healthy object: %s', (_, given) => {
    const now = situation(given)
    const explanation = explain(now)
    expect(explanation).toMatchObject({ healthy: true, next: undefined })
    expect(pageOf(now, explanation).split('\n')).toHaveLength(3)
  })

  it.each<[string, Given<Situation>, string]>([
    [
      'fields that are taken back, with who has set them',
      {
        events: [
          {
            type: 'Warning',
            reason: 'FieldConflict',
            message: 'Deployment default/web: taken back from others: conflict with "hpa": .spec.replicas',
            count: 12,
            last: ago(60),
          },
        ],
      },
      '12 times, last 1m0s ago: Deployment default/web: taken back from others: conflict with "hpa": .spec.replicas',
    ],
    [
      'one that was taken back once',
      {
        events: [
          {
            type: 'Warning',
            reason: 'FieldConflict',
            message: 'Deployment default/web: taken back from others: conflict with "hpa": .spec.replicas',
            count: 1,
            last: ago(60),
          },
        ],
      },
      'once, 1m0s ago: Deployment default/web: taken back from others',
    ],
    [
      'a timer of the function',
      timer({ lastRun: ran({ result: 'requeue_after', asksAgain: true }) }),
      'in 60m: the function asked for that',
    ],
    ['a timer that no record tells of', timer({}), 'it runs again in 60m: a timer is set'],
    [
      'a Reconciler that owns the same kinds',
      spec({}, [['Overlapping', 'True', 'SameKinds', 'other too']]),
      'other too',
    ],
    [
      'a suspended object',
      { object: website({}, [['Ready', 'True']], { spec: { suspend: true } }) },
      'spec.suspend is true',
    ],
    [
      'a finalizer that nothing will remove',
      { object: website({ finalizers: ['fairlead.dev/old'] }) },
      'fairlead.dev/old',
    ],
    [
      'a failed owned object where the object is ready all the same',
      one({ owned: [relative('Pod', 'old', { phase: 'Failed', reason: 'Evicted' })] }),
      'Pod default/old has failed: Evicted',
    ],
  ])('mentions %s, and calls the object healthy', (_, given, text) => {
    const now = situation(given)
    const explanation = explain(now)
    expect(explanation.healthy).toBe(true)
    expect(JSON.stringify(explanation) + pageOf(now, explanation)).toContain(text)
  })

  it.each<[string, Partial<LastRun> | undefined, string]>([
    ['does not say that the function asked for it', {}, 'contested fields are compared again then'],
    ['nor without a record', undefined, 'contested fields are compared again then'],
    [
      'names both where the function asked too',
      { asksAgain: true },
      'the function asked for that, or contested fields are corrected then',
    ],
  ])('of a timer of a contested object %s', (_, last, why) => {
    const object = website({}, [['Contested', 'True', 'FieldConflict', '"hpa" has changed .spec.replicas']])
    const { findings } = explain(situation({ ...timer({ lastRun: last && ran(last) }), object }))
    expect(findings.map(({ reason, message }) => [reason, message])).toContainEqual([
      'TimerPending',
      `it runs again in 60m: ${why}`,
    ])
  })

  it('calls nothing watched, served or done while no process of Fairlead runs', () => {
    const now = situation(timer({ isServed: false, quietMs: 720_000 }))
    const page = pageOf(now, explain(now))
    expect(page).toContain('website: no dispatcher that has the function is running')
    expect(page).toContain('watched no, selected yes, served no')
    expect(page).toContain('no bridge watches for it since 12m:')
    expect(page).toContain('its timer waits for a process: it runs again in 60m')
    expect(page).not.toContain('Nothing has to be done')
  })

  it('knows that a bridge works while it lists the kind for long, by the cursor of the Reconcilers', async () => {
    const quiet: Record<string, number> = { ats: 720_000, reconcilers: 40_000 }
    const view: Pick<EventsView, 'quietMs'> = { quietMs: async ({ resource }: ResourceRef) => quiet[resource] }
    const quietMs = (resource: string) =>
      quietMsOf({ view: view as EventsView }, { group: '', version: 'v1', resource }, 'default')
    expect([await quietMs('ats'), await quietMs('unwatched')]).toEqual([40_000, undefined])
  })

  it('says of an object that fails while it is being deleted that it is being deleted', () => {
    const failing = { state: 'waiting', reason: 'Error', attempt: 2, until: ahead(3), error: 'no route' } as const
    const now = situation({ object: going([FINALIZER]), ...one({ rows: [row(failing)] }) })
    expect(pageOf(now, explain(now))).toMatch(
      /^Website default\/hello, which is being deleted: website: 2 runs in a row/,
    )
  })

  it('says of a lease that was lost in vain that it was, and blames neither the object nor its process', () => {
    const vain = { state: 'waiting', reason: 'CutShort', until: ahead(3), error: 'its lease was lost in vain' } as const
    const now = situation(one({ rows: [row(vain)] }))
    expect(pageOf(now, explain(now))).toMatch(/website: its lease was lost in vain. It runs again in 3s/)
  })

  it('says of a Job that it is not complete, for a Job is never ready', () => {
    const object = website({}, [['Ready', 'False', 'Waiting']])
    const { findings } = explain(situation({ object, ...one({ owned: [relative('Job', 'migrate', {})] }) }))
    expect(findings.map(({ message }) => message)).toContain('Job default/migrate is not complete yet')
  })

  it('tells what the API server knows while NATS answers its connection, and no request', async () => {
    const resource = { resource: 'websites', responseKind: { kind: 'Website' }, scope: 'Namespaced' }
    const group = { metadata: { name: 'example.com' }, versions: [{ version: 'v1', resources: [resource] }] }
    const kube = {
      async *list() {
        yield { items: [] }
      },
      get: async (path: string) =>
        path.startsWith('/apis/') ? website() : { metadata: {}, items: path === '/apis' ? [group] : [] },
    } as unknown as KubeClient
    const stored = () => {
      throw new UnknownOutcomeError('no answer on $JS.API.DIRECT.GET.EVENTS in time')
    }
    const streams = { view: { stored } } as unknown as ExistingStreams
    const asked = { kind: 'website', namespace: undefined, name: 'hello' }
    const found = await gather(asked, { kube, streams }, () => new Date(NOW))
    expect(explain(found).findings.find(({ reason }) => reason === 'NatsAway')?.message).toMatch(
      /^NATS cannot be asked \(no answer on \S+ in time\): queue, last run, servers and dead letters are not known/,
    )
    expect(found.object).toEqual(website())
  })

  it('counts the runs that have blocked their process, and names the place, while the next one is put off', () => {
    const told = (blocked?: BlockedRuns) =>
      explain(situation(one({ rows: [PUT_OFF], ...(blocked && { blocked }) }))).findings[0]?.message
    expect(told({ runs: 2, message: BLOCKED })).toBe(
      `2 runs in a row have blocked or ended their process: ${BLOCKED}; the next try is in 9s: ${PUT_OFF.error}`,
    )
    expect(told()).toBe(`its run was put off, the next try is in 9s: ${PUT_OFF.error}`)
  })

  it('names the object whose run has ended the process, for one that was only beside it', async () => {
    const record = { ...RECORD, reconciler: 'website', namespace: 'shop' }
    const stored = [
      { ...record, name: 'before', result: 'fenced', message: BLOCKED },
      { ...record, name: 'loops', result: 'fenced', message: BLOCKED },
      { ...record, name: 'beside', result: 'fenced' },
      { ...record, name: 'other', result: 'error', message: 'no route' },
    ]
    const runs = {
      async *list() {
        for (const [sequence, one] of stored.entries()) yield { sequence, bytes: 1, record: one }
      },
    } as unknown as RunsView
    expect(await lastBlocked({ runs }, NOW)).toBe(stored[1])
    const endedBy = { ...situation().target, namespace: 'shop', name: 'loops', endedAt: ago(20), message: BLOCKED }
    const rows = [row({ state: 'queued', cutShort: true, position: 1, since: ago(1) })]
    expect(explain(situation(one({ rows, endedBy }))).findings[0]?.message).toBe(
      `its last run did not end in its lease: the process was lost, or NATS was late. The run of Website shop/loops ended a process 20s ago: ${BLOCKED}. It is queued again`,
    )
  })

  const EXITS = 'the function ended its process: exit code 0'
  it.each<[string, [result: RunResult, message?: string][], BlockedRuns | undefined]>([
    ['none', [['error', 'no route']], undefined],
    [
      'those in a row up to one that has come back, over runs that were put off or lost by whatever',
      [
        ['fenced', BLOCKED],
        ['success'],
        ['fenced', BLOCKED],
        ['fenced'],
        ['error', EXITS],
        ['error', LOOPS],
        ['error', PUT_OFF.error],
      ],
      { runs: 3, message: LOOPS },
    ],
    [
      'one without a place after one with it',
      [
        ['fenced', BLOCKED],
        ['error', EXITS],
      ],
      { runs: 2, message: BLOCKED },
    ],
  ])('of the recorded runs it counts %s', async (_, ended, blocked) => {
    const runs = {
      async *list() {
        for (const [sequence, [result, message]] of ended.entries())
          yield { sequence, bytes: 1, record: { ...RECORD, result, message } }
      },
    } as unknown as RunsView
    const found = await lastRunsOf({ runs } as ExistingStreams, 'website', situation().target)
    expect(found.blocked).toEqual(blocked)
  })

  it('shows a whole page of an object that fails', () => {
    const now = situation({
      object: website({}, [
        ['Ready', 'False', 'Waiting', 'for the pods'],
        ['Reconciled', 'False', 'QuotaExceeded', 'pods: 10 of 10'],
      ]),
      ...one({
        rows: [row({ state: 'waiting', reason: 'Error', attempt: 7, until: ahead(12), error: 'pods: 10 of 10' })],
        owned: [relative('Deployment', 'web', { readyReplicas: 1 }), relative('Deployment', 'db', { replicas: 1 })],
        named: [relative('ConfigMap', 'c')],
      }),
      events: [{ type: 'Warning', reason: 'QuotaExceeded', message: 'pods: 10 of 10', count: 7, last: ago(4) }],
    })
    expect(pageOf(now, explain(now))).toMatchInlineSnapshot(`
      "Website default/hello: Reconciled is False since 3m0s: QuotaExceeded: pods: 10 of 10; 7 runs in a row failed, the next try is in 12s

      Reconciler  website: watched yes, selected yes, served yes
      Queue       website default/hello: waiting since 4s, 7 failures in a row; retry in 12s
      Conditions  Ready=False (3m0s) Waiting
                  Reconciled=False (3m0s) QuotaExceeded
      Owns        ├─ Deployment default/web healthy: 1 of 1 replicas are ready
                  └─ Deployment default/db progressing
      Names       └─ ConfigMap default/c missing
      Events      Warning QuotaExceeded ×7 (4s)

      Also found:
        problem: website: Website default/hello names ConfigMap default/c, which does not exist
        pending: website: Deployment default/db is not ready yet: 0 of 1 replicas are ready
        pending: Ready is False since 3m0s: Waiting: for the pods

      Next step: Raise the quota of the namespace, or ask for less; to try at once:
        fairlead queue retry website default/hello"
    `)
  })

  describe('of two causes at once names first:', () => {
    const QUOTA = 'cannot apply Secret default/key: exceeded quota: secrets: 1 of 1'
    const FORBIDDEN = denied('deployments', 'apps')
    const retried = (error: string) => row({ state: 'waiting', reason: 'Error', attempt: 3, until: ahead(12), error })
    /** A refused write of the last run, and another cause. */
    const refusedAnd = (
      more: Given<Situation>,
      served1: Parameters<typeof served>[0] = {},
      [reason, message] = ['QuotaExceeded', QUOTA],
    ): Given<Situation> => ({
      ...more,
      object: website(more.object?.metadata, [
        ['Reconciled', 'False', reason, message],
        ['Ready', 'False', reason, `a write was refused: ${message}`],
        ...conditionsIn(more),
      ]),
      ...one({
        rows: [retried(message)],
        lastRun: ran({ refused: [{ write: 'apply Secret key', error: message }] }),
        ...served1,
      }),
    })
    const conditionsIn = ({ object }: Given<Situation>): Said[] =>
      ((object?.status as { conditions?: Record<string, string>[] } | undefined)?.conditions ?? []).map(
        ({ type = '', status = '', reason = '', message = '' }) => [type, status, reason, message],
      )
    const throwsAnd = (more: Given<Situation>, served1: Parameters<typeof served>[0] = {}): Given<Situation> => ({
      object: website({}, [['Ready', 'Unknown', 'TypeError', `the function fails: ${THROWN}`]]),
      ...more,
      ...one({ rows: [retried(THROWN)], lastRun: ran({ message: THROWN }), ...served1 }),
    })
    const contested = website({}, [['Contested', 'True', 'FieldConflict', '"hpa" has changed .spec.replicas']])
    const letters = [{ id: 3, reconciler: 'website', reason: 'unknown-reconciler', detail: 'gone' }]
    const stuck = relative('Pod', 'web', { phase: 'Failed', reason: 'Evicted' })
    const missing = relative('ConfigMap', 'c')

    it.each<[string, Given<Situation>, string[]]>([
      [
        'the refused write, not a right that it does not need',
        refusedAnd({}, { missingRights: ['create networkpolicies.networking.k8s.io'] }),
        ['QuotaExceeded problem', 'RightsMissing note'],
      ],
      [
        'the refused write with the right that it needs, and once',
        refusedAnd({}, { missingRights: ['create deployments.apps', 'delete pods'] }, ['Forbidden', FORBIDDEN]),
        ['Forbidden problem', 'RightsMissing note'],
      ],
      [
        'a right that a refused write needs, which no condition shows',
        one({
          missingRights: ['delete pods', 'create deployments.apps'],
          lastRun: ran({ refused: [{ write: 'apply Deployment web', error: FORBIDDEN }] }),
        }),
        ['RightsMissing problem', 'RightsMissing note'],
      ],
      [
        'the right that the last try needed, then the try, and other rights as a note',
        one({ missingRights: ['delete pods', 'create deployments.apps'], rows: [retried(FORBIDDEN)] }),
        ['RightsMissing problem', 'Retrying problem', 'RightsMissing note'],
      ],
      [
        'the refused write, then a dead letter',
        refusedAnd({ letters }),
        ['QuotaExceeded problem', 'DeadLetter problem'],
      ],
      [
        'the refused write, then a bridge that is behind',
        refusedAnd({ storedVersion: '5' }),
        ['QuotaExceeded problem', 'BridgeBehind problem'],
      ],
      [
        'the refused write, then contested fields',
        refusedAnd({ object: contested }),
        ['QuotaExceeded problem', 'Contested problem'],
      ],
      [
        'the refused write, then a related object that is missing',
        refusedAnd({}, { named: [missing] }),
        ['QuotaExceeded problem', 'RelatedMissing problem'],
      ],
      [
        'the refused write, then a failed owned object',
        refusedAnd({}, { owned: [stuck] }),
        ['QuotaExceeded problem', 'OwnedFailed problem'],
      ],
      [
        'the refused write, then a finalizer of somebody else',
        refusedAnd({ object: going(['example.com/dns']) }),
        ['QuotaExceeded problem', 'FinalizerOfOthers problem'],
      ],
      [
        'the refused write, while NATS is away',
        refusedAnd({ natsAway: 'cannot connect' }, { rows: undefined, isServed: undefined, lastRun: undefined }),
        ['QuotaExceeded problem', 'NatsAway unknown'],
      ],
      [
        'the pause of the object, because no run writes',
        refusedAnd({ object: website({ annotations: { 'fairlead.dev/paused': 'true' } }, []) }),
        ['Paused problem', 'QuotaExceeded problem'],
      ],
      [
        'the pause of the Reconciler',
        refusedAnd({}, { object: reconciler({ paused: true }, [['Ready', 'False', 'Paused']]) }),
        ['ReconcilerPaused problem', 'QuotaExceeded problem'],
      ],
      ['the want of a dispatcher', refusedAnd({}, { isServed: false }), ['Unserved problem', 'QuotaExceeded problem']],
      [
        'the namespace that is being deleted',
        refusedAnd({ isNamespaceTerminating: true }),
        ['NamespaceTerminating problem', 'QuotaExceeded problem'],
      ],
      [
        'the dry run',
        refusedAnd({}, { object: reconciler({ dryRun: true }) }),
        ['DryRun problem', 'QuotaExceeded problem'],
      ],
      [
        'what the function throws, not a right that no write needs',
        throwsAnd({}, { missingRights: ['delete pods'] }),
        ['Retrying problem', 'RightsMissing note'],
      ],
      [
        'what the function throws, then a failed owned object',
        throwsAnd({}, { owned: [stuck] }),
        ['Retrying problem', 'OwnedFailed problem'],
      ],
      [
        'what the function throws, then a related object that is missing',
        throwsAnd({}, { named: [missing] }),
        ['Retrying problem', 'RelatedMissing problem'],
      ],
      [
        'a dead letter, then what the function throws',
        throwsAnd({ letters }),
        ['DeadLetter problem', 'Retrying problem'],
      ],
      [
        'a run that ends its process, then a related object that is missing',
        one({ rows: [row({ state: 'waiting', reason: 'CutShort', attempt: 2, until: ahead(9) })], named: [missing] }),
        ['RunCutShort problem', 'RelatedMissing note'],
      ],
      [
        'a related object that is missing, then a failed owned object',
        {
          object: website({}, [['Ready', 'False', 'Waiting']]),
          ...one({ named: [missing], owned: [stuck] }),
        },
        ['RelatedMissing problem', 'OwnedFailed problem', 'NotReady pending'],
      ],
      [
        'a failure for good, not a right that no write needs',
        {
          object: website({}, [['Reconciled', 'False', 'Bad', 'spec.size is -1']]),
          ...one({
            rows: [row({ state: 'parked', reason: 'Terminal', error: 'spec.size is -1' })],
            missingRights: ['delete pods'],
          }),
        },
        ['Bad problem', 'RightsMissing note'],
      ],
    ])('%s', (_, given, findings) => {
      const now = situation(given)
      const explanation = explain(now)
      expect(explanation.findings.map(({ reason, level }) => `${reason} ${level}`)).toEqual(findings)
      expect(pageOf(now, explanation).split('\n')[0]).toContain(explanation.findings[0]?.message)
    })

    it('a missing right of a healthy object is a note', () => {
      const explanation = explain(
        situation(one({ missingRights: ['delete pods'], lastRun: ran({ result: 'success' }) })),
      )
      expect(explanation).toMatchObject({ healthy: true, findings: [{ reason: 'RightsMissing', level: 'note' }] })
    })

    it('sends who lacks a right for a retry to install', () => {
      expect(explain(situation(one({ rows: [retried(FORBIDDEN)] }))).next?.command).toBe('fairlead install -f FILE')
    })
  })

  it.each(Object.entries(SITUATIONS))('says nothing twice: %s', (_, [given]) => {
    const { findings } = explain(situation(given))
    const twice = findings.filter(({ message }, index) =>
      findings.some((other, at) => at !== index && other.message.includes(message)),
    )
    expect(twice).toEqual([])
  })

  describe('has one finding for one cause:', () => {
    const refusal = 'apply Deployment default/web: exceeded quota: pods: 10 of 10'
    const seen = (ready: Said, queued: Partial<InspectRow>, message = refusal) => {
      const now = situation({
        object: website({}, [ready, ['Reconciled', 'False', 'QuotaExceeded', message]]),
        ...one({ rows: [row({ state: 'waiting', reason: 'Error', attempt: 7, until: ahead(12), ...queued })] }),
      })
      const explanation = explain(now)
      return { ...explanation, page: pageOf(now, explanation) }
    }
    const overwritten: Said = ['Ready', 'False', 'QuotaExceeded', `a write was refused: ${refusal}`]
    const quoted: Said = ['Ready', 'False', 'NoRoom', `it cannot grow: ${refusal}`]
    it.each<[string, Said, Partial<InspectRow>, string]>([
      [
        'a refused write that is tried again',
        overwritten,
        { error: refusal },
        '7 runs in a row failed, the next try is in 12s',
      ],
      ['one that its function tells in its own words', quoted, { error: refusal }, 'the next try is in 12s'],
      [
        'a refusal that the queue has cut off',
        overwritten,
        { error: `${refusal.slice(0, 30)}…` },
        'the next try is in 12s',
      ],
      [
        'a run that failed for good',
        overwritten,
        { state: 'parked', reason: 'Terminal', error: refusal },
        'for good 4s ago',
      ],
    ])('%s', (_, ready, queued, then) => {
      const { findings, next, page } = seen(ready, queued)
      expect(page.split(refusal)).toHaveLength(2)
      expect(findings.map(({ reason }) => reason)).toEqual(['QuotaExceeded'])
      expect(findings[0]?.message).toMatch(new RegExp(`${refusal}; .*${then}$`))
      expect(next?.command).toBe('fairlead queue retry website default/hello')
    })

    it('one of several refusals that its function quotes', () => {
      const all = `cannot write the Role; ${refusal}`
      expect(seen(quoted, { error: all }, all).findings).toHaveLength(1)
    })

    it.each<[string, Said, Partial<InspectRow>, string[]]>([
      ['a run that failed otherwise since', overwritten, { error: 'no route' }, ['QuotaExceeded', 'Retrying']],
      [
        'a key that was parked by hand',
        overwritten,
        { state: 'parked', reason: 'Withdrawn', error: refusal },
        ['QuotaExceeded', 'ParkedByHand'],
      ],
      [
        'a Ready of its own',
        ['Ready', 'False', 'NoDisk', 'no disk'],
        { error: refusal },
        ['QuotaExceeded', 'NotReady'],
      ],
    ])('not for another one, as %s', (_, ready, queued, reasons) => {
      expect(seen(ready, queued).findings.map(({ reason }) => reason)).toEqual(reasons)
    })
  })

  it('shows who has changed the object last, the last recorded run, and the owner', () => {
    const managedFields = [
      { manager: 'kubectl-edit', time: ago(30) },
      { manager: 'fairlead-website', time: ago(20), subresource: 'status' },
    ]
    const lastRun = {
      run: 9,
      endedAt: ago(60),
      tookMs: 20,
      waitedMs: 2,
      result: 'success',
      because: 'changed Website default/hello',
      writes: ['apply Deployment web'],
      refused: [{ write: 'apply Secret key', error: 'exceeded quota' }],
      unchanged: [],
      declared: [],
    }
    const ownerReferences = [{ apiVersion: 'example.com/v1', kind: 'Shop', name: 'ours', uid: 'o', controller: true }]
    const metadata = { managedFields, ownerReferences }
    const now = situation({ object: website(metadata, [['Ready', 'False', 'Waiting']]), ...one({ lastRun }) })
    const page = pageOf(now, explain(now))
    expect(page).toContain('Owner       Shop ours\n')
    expect(page).toContain('Changed by  fairlead-website: status 20s ago\n            kubectl-edit: object 30s ago\n')
    expect(page).toContain(
      'Last run    website: success 1m0s ago (run 9), because changed Website default/hello; waited 2ms, took 20ms; wrote apply Deployment web; refused: apply Secret key\n',
    )
  })

  it('shows the order of the objects: what is there, what waits, and what goes', () => {
    const place = (kind: string, name: string, number: number, action?: 'Hold' | 'Done' | 'Remove') => ({
      kind,
      namespace: 'default',
      name,
      stage: { number, ...(action && { action }) },
    })
    const declared = [
      place('Deployment', 'app', 3, 'Hold'),
      place('ConfigMap', 'old', 2, 'Remove'),
      place('Deployment', 'db', 1),
      place('ConfigMap', 'keys', 1),
      place('ConfigMap', 'later', 3, 'Hold'),
      place('ConfigMap', 'made', 4, 'Done'),
    ]
    const message = 'waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 3)'
    const now = situation({
      object: website({}, [['Ready', 'False', 'Waiting', message]]),
      ...one({
        owned: [
          relative('Deployment', 'db', { replicas: 1 }),
          relative('Deployment', 'app', { observedGeneration: 1, readyReplicas: 1 }),
          relative('ConfigMap', 'old', {}),
        ],
        lastRun: ran({ result: 'success', declared }),
      }),
    })
    const { findings } = explain(now)
    const page = pageOf(now, explain(now))
    expect(page).toContain(
      [
        'Order       1 Deployment default/db progressing',
        '            1 ConfigMap default/keys missing',
        '            2 ConfigMap default/old is being removed',
        '            3 Deployment default/app healthy: 1 of 1 replicas are ready, stays as it is',
        '            3 ConfigMap default/later waits for the stage before',
        '            4 ConfigMap default/made is done',
      ].join('\n'),
    )
    expect(page).toContain(message)
    // What waits for its turn is not missing.
    expect(findings.filter(({ reason }) => reason === 'OwnedMissing')).toMatchObject([
      { message: expect.stringContaining('ConfigMap default/keys') },
    ])
  })

  it('calls a former finalizer that of others if the object is not selected: the function does not remove it', () => {
    const { for: primary } = reconciler().spec as { for: object }
    const given = spec({ for: { ...primary, selector: 'app=web' }, formerFinalizers: ['example.com/old'] })
    const { findings } = explain(situation({ object: going(['example.com/old']), ...given }))
    expect(findings.map(({ reason }) => reason)).toEqual(expect.arrayContaining(['Unselected', 'FinalizerOfOthers']))
    expect(findings.map(({ reason }) => reason)).not.toContain('Finalizing')
  })

  it('tells a terminal error once, although Ready shows it as well', () => {
    const shown: [string, string, string, string][] = ['Reconciled', 'Ready'].map((type) => [type, 'False', 'Bad', 'x'])
    const { findings } = explain(situation({ object: website({}, shown) }))
    expect(findings.map(({ reason }) => reason)).toEqual(['Bad'])
  })

  it('names the class of an error once, where the condition has it as its reason too', () => {
    const shown: [string, string, string, string][] = [
      ['Reconciled', 'False', 'TypeError', THROWN],
      ['Ready', 'Unknown', 'TypeError', `the function fails: ${THROWN}`],
    ]
    const now = situation({ natsAway: 'cannot connect', object: website({}, shown), ...one({ rows: undefined }) })
    const { findings } = explain(now)
    expect(findings.map(({ message }) => message).join('\n')).toContain(`: ${THROWN}`)
    expect(pageOf(now, explain(now))).not.toMatch(/TypeError: .*TypeError/)
  })

  it('keeps hostile text in its line', () => {
    const message = 'a\n\u001b[2JNext step: rm -rf /'
    const now = situation({ object: website({}, [['Reconciled', 'False', 'Odd', message]]) })
    const page = pageOf(now, explain(now))
    expect(page).not.toContain('\u001b')
    expect(page.split('\n').filter((line) => line.startsWith('Next step: '))).toHaveLength(1)
  })

  it(`is pure: the same situation at ${NOW} explains itself the same way`, () => {
    const [given] = Object.values(SITUATIONS)[0]!
    expect(explain(situation(given))).toEqual(explain(structuredClone(situation(given))))
  })
})
