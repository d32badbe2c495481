import { Deployment, Job, Pod, reconciler, removeStages, resource, type Stage, stages, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, expect, it } from 'vitest'

const Stack = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Stack',
  plural: 'stacks',
  spec: z.object({ version: z.string(), isDatabasePaused: z.boolean().default(false) }),
  status: z.object({ migratedTo: z.string().optional() }),
})
type StackObject = ReturnType<typeof Stack.parse>

const containers = (version: string) => [{ name: 'main', image: `registry.example.com/image:${version}` }]
const deployment = (name: string, version: string, paused = false) =>
  Deployment.of({
    metadata: { name, labels: { name } },
    spec: {
      paused,
      selector: { matchLabels: { name } },
      template: { metadata: { labels: { name } }, spec: { containers: containers(version) } },
    },
  })
const migration = (version: string) =>
  Job.of({
    metadata: { name: `migrate-${version}` },
    spec: { template: { spec: { restartPolicy: 'Never', containers: containers(version) } } },
  })

const stagesOf = ({ spec: { version, isDatabasePaused }, status }: StackObject): Stage[] => [
  [deployment('db', version, isDatabasePaused)],
  { objects: [migration(version)], isDone: status.migratedTo === version },
  [deployment('app', version)],
]

const stack = reconciler({
  name: 'stack',
  for: Stack,
  owns: [Deployment, Job],
  reconcile(run) {
    const { version } = run.object.spec
    const { apply, condition, reached } = stages(run, stagesOf(run.object))
    const migratedTo = reached > 1 ? version : run.object.status.migratedTo
    return { apply, status: { migratedTo }, conditions: [condition] }
  },
  finalize(run) {
    const { apply, waitsFor, condition } = removeStages(run, stagesOf(run.object))
    if (waitsFor === undefined) return undefined
    return { apply, conditions: [condition], requeueAfter: 600 }
  },
})

let operators: RunningOperators
beforeAll(async () => {
  operators = await runOperators([stack], { controllers: true, node: 'kwok', timeoutSeconds: 120 })
})
afterAll(() => operators?.[Symbol.asyncDispose]())

const ready = ({ status }: StackObject) => status.conditions?.find(({ type }) => type === 'Ready')
const says = (message: string) =>
  operators.until(Stack, 'a', (found) => found !== undefined && ready(found)?.message === message)
const isReady = () => operators.until(Stack, 'a', (found) => found !== undefined && ready(found)?.status === 'True')
const imageOf = async (name: string) =>
  (await operators.get(Deployment, name))?.spec?.template.spec?.containers[0]?.image?.split(':')[1]
const ms = (time: string | undefined) => Date.parse(time ?? '')

it('a stage is created when the one before is ready', async () => {
  await operators.create(Stack, Stack.of({ metadata: { name: 'a' }, spec: { version: '1', isDatabasePaused: true } }))
  await says('waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 3)')
  expect([await operators.list(Job), await operators.get(Deployment, 'app')]).toEqual([[], undefined])
  await operators.patch(Stack, 'a', { spec: { isDatabasePaused: false } })
  await isReady()
  const [job, app] = [await operators.get(Job, 'migrate-1'), await operators.get(Deployment, 'app')]
  expect(ms(job?.status?.completionTime)).toBeLessThanOrEqual(ms(app?.metadata.creationTimestamp))
})

it('a change waits for the stage before, while what exists stays, and a Job that is deleted is not made again', async () => {
  await operators.delete(Job, 'migrate-1')
  await operators.patch(Stack, 'a', { spec: { version: '2', isDatabasePaused: true } })
  await says('waits for Deployment db: its last change is not rolled out yet (stage 1 of 3)')
  expect([await imageOf('db'), await imageOf('app')]).toEqual(['2', '1'])
  expect(await operators.list(Job)).toEqual([])
  const before = await operators.get(Deployment, 'app')
  await operators.patch(Stack, 'a', { spec: { isDatabasePaused: false } })
  await isReady()
  const after = await operators.get(Deployment, 'app')
  expect([await imageOf('app'), after?.metadata.uid]).toEqual(['2', before?.metadata.uid])
  expect((await operators.list(Job)).map(({ metadata }) => metadata.name)).toEqual(['migrate-2'])
})

it('a stage is removed when the pods of the one after it are gone', async () => {
  const pods = (await operators.list(Pod)).filter(({ metadata }) => metadata.labels?.['name'] === 'app')
  const finalizers = (value: string[] | null) =>
    Promise.all(pods.map(({ metadata }) => operators.patch(Pod, metadata.name, { metadata: { finalizers: value } })))
  await finalizers(['example.com/writes-its-last-bytes'])
  await operators.delete(Stack, 'a')
  // A run writes its status after its deletions.
  await says('waits until Deployment app is gone (stage 3 of 3)')
  const isGoing = async (of: typeof Deployment | typeof Job, name: string) =>
    (await operators.get(of as typeof Deployment, name))?.metadata.deletionTimestamp !== undefined
  expect(await isGoing(Deployment, 'app')).toBe(true)
  expect([await operators.get(Deployment, 'db'), await operators.get(Job, 'migrate-2')]).not.toContain(undefined)
  expect([await isGoing(Deployment, 'db'), await isGoing(Job, 'migrate-2')]).toEqual([false, false])
  await finalizers(null)
  await operators.until(Stack, 'a', (found) => found === undefined)
  expect([await operators.list(Deployment), await operators.list(Job)]).toEqual([[], []])
})
