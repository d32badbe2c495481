import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { command } from '../support/command.ts'
import type { FairleadProcess } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { type At, at, startWorld, until, untilPhase, type World } from './world.ts'

const EXAMPLE = fileURLToPath(new URL('../../functions/at/example.yaml', import.meta.url))
const LONG_NAME = 'a'.repeat(253)
const LONG_AGO = new Date('2019-04-12T10:12:00Z')

const turn = await takeTurnWithNode()
afterAll(turn.end)

describe.skipIf(turn.skip)('an At on a real node', () => {
  let world: World
  let kubectl: Kubectl
  let process: FairleadProcess

  beforeAll(async () => {
    world = await startWorld({ node: 'real', controllers: true })
    // A long lease, so that no run is repeated on a busy machine.
    Object.assign(world.env, { FAIRLEAD_LEASE_SECONDS: '30' })
    // It looks for new kinds every 30 s, and collects nothing of those that it does not know: now it knows Ats.
    await world.cluster.restart('kube-controller-manager')
    kubectl = await kubectlFor(world.cluster)
    process = world.up()
    await createThoseThatTakeTime()
  })
  afterAll(async () => {
    await process?.[Symbol.asyncDispose]()
    await world?.[Symbol.asyncDispose]()
  })

  /** What waits for ten seconds or so; looked at last. */
  async function createThoseThatTakeTime(): Promise<void> {
    const volume = { name: 'data', hostPath: { path: join(world.cluster.dir, 'at'), type: 'DirectoryOrCreate' } }
    const mounted = { name: 'at', volumeMounts: [{ name: 'data', mountPath: '/data' }] }
    const once = 'test -e /data/tried && echo "$DAY" || { touch /data/tried; exit 7; }'
    const env = [{ name: 'DAY', value: 'second' }]
    await createWith('retried', once, {
      shell: true,
      template: {
        metadata: { labels: { kind: 'try' } },
        spec: { volumes: [volume], containers: [{ ...mounted, env }] },
      },
    })
    await createWith('short-lived', 'true', { ttlSecondsAfterFinished: 1 })
    await createWith('suspended', 'true', { suspend: true })
    await createWith('too-late', 'true', { startingDeadlineSeconds: 60 })
    await createWith(LONG_NAME, 'true', {})
  }

  async function createWith(name: string, command: string, spec: object): Promise<void> {
    const object = at(name, LONG_AGO, command) as At
    await world.create({ ...object, spec: { ...object.spec, ...spec } })
  }

  const done = (name: string) => untilPhase(kubectl, 'DONE', name)
  const uidOf = (object: string) => kubectl(['get', object, '-o', 'jsonpath={.metadata.uid}'])
  const atNamed = async (name: string) => JSON.parse(await kubectl(['get', 'at', name, '-o', 'json'])) as At

  /** A run that began after everything before it had been seen. */
  async function runAnother(name: string): Promise<void> {
    await world.create(at(name, LONG_AGO))
    await done(name)
  }

  async function reasonOf(name: string): Promise<string | undefined> {
    const { status } = await atNamed(name)
    return status?.conditions?.find((one) => one.type === 'Reconciled' && one.status === 'False')?.reason
  }

  async function eventReasons(name: string): Promise<string[]> {
    const list = await kubectl(['get', 'events', `--field-selector=involvedObject.name=${name}`, '-o', 'json'])
    return (JSON.parse(list) as { items: { reason: string }[] }).items.map(({ reason }) => reason)
  }

  it('is the one of the book: kubectl shows DONE, and its pod has printed YAY', async () => {
    await kubectl(['apply', '-f', EXAMPLE])
    await done('example-at')
    expect(await kubectl(['get', 'at'])).toMatch(/^example-at +2019-04-12T10:12:00Z +DONE\b/m)
    expect(await kubectl(['logs', 'example-at-pod'])).toBe('YAY\n')
  })

  it('keeps its pod when Fairlead is stopped and started', async () => {
    const before = await uidOf('pod/example-at-pod')
    process.kill('SIGTERM')
    expect((await process.exited).code).toBe(0)
    expect(await uidOf('pod/example-at-pod')).toBe(before)
    process = world.up()
    await runAnother('after-restart')
    expect(await uidOf('pod/example-at-pod')).toBe(before)
  })

  it('runs once more, and only once, when it is deleted and created anew', async () => {
    const before = await uidOf('pod/example-at-pod')
    await kubectl(['delete', '-f', EXAMPLE])
    await kubectl(['apply', '-f', EXAMPLE])
    await done('example-at')
    expect(await kubectl(['logs', 'example-at-pod'])).toBe('YAY\n')
    expect(await uidOf('pod/example-at-pod')).not.toBe(before)
    await runAnother('after-second-life')
    expect(await world.podCreations('example-at-pod')).toHaveLength(2)
  })

  it('takes its pod along when it is deleted', async () => {
    await kubectl(['delete', '-f', EXAMPLE])
    await kubectl(['wait', '--for=delete', 'pod/example-at-pod', '--timeout=240s'])
  })

  it('reports a foreign pod that has its name, never counts it, and runs when the name is free', async () => {
    await kubectl(['run', 'foreign-pod', '--image=busybox', '--restart=Never', '--', 'true'])
    await world.create(at('foreign', LONG_AGO))
    await until(async () => (await reasonOf('foreign')) === 'NameTaken')
    await until(async () => (await eventReasons('foreign')).includes('NameTaken'))
    await kubectl(['wait', '--for=jsonpath={.status.phase}=Succeeded', 'pod/foreign-pod', '--timeout=240s'])
    await runAnother('after-foreign')
    expect((await atNamed('foreign')).status?.phase).not.toBe('DONE')
    await kubectl(['delete', 'pod', 'foreign-pod'])
    await done('foreign')
    expect(await kubectl(['logs', 'foreign-pod'])).toBe('YAY\n')
    expect(await reasonOf('foreign')).toBe(undefined)
  })

  it('says on itself that its time is none, and is parked until it is edited', async () => {
    const object = at('bad', LONG_AGO) as At
    await world.create({ ...object, spec: { ...object.spec, schedule: 'tomorrow' } })
    await until(async () => (await reasonOf('bad')) === 'InvalidSchedule')
    await until(async () => (await eventReasons('bad')).includes('InvalidSchedule'))
    await until(async () => (await queueState('bad')) === 'parked')
    const runs = process.logs.filter(({ step, key }) => step === 'started' && key === 'default/bad').length
    expect(runs, 'once, and once more for its own condition').toBeOneOf([1, 2])
    await kubectl(['patch', 'at', 'bad', '--type=merge', '-p', '{"spec":{"schedule":"2019-04-12T10:12:00Z"}}'])
    await done('bad')
  })

  it('that fails is FAILED, with exit code and reason, and what it printed is kept', async () => {
    const failing = at('failing', LONG_AGO, 'printf "%s|" "$1" "$0" | tee /dev/stderr; exit 3') as At
    await world.create({ ...failing, spec: { ...failing.spec, shell: true, args: ["it's  2"], backoffLimit: 0 } })
    const slow = at('slow', LONG_AGO, 'sleep 1000') as At
    const template = { spec: { terminationGracePeriodSeconds: 0 } }
    await world.create({ ...slow, spec: { ...slow.spec, activeDeadlineSeconds: 2, template } })

    for (const name of ['failing', 'slow']) await untilPhase(kubectl, 'FAILED', name)
    expect((await atNamed('failing')).status).toMatchObject({ exitCode: 3, reason: 'Error', podName: 'failing-pod' })
    expect(await kubectl(['logs', 'failing-pod'])).toContain("it's  2|sh|")
    expect((await atNamed('slow')).status).toMatchObject({ reason: 'DeadlineExceeded', failures: 1 })
    await until(async () => (await eventReasons('failing')).includes('BackoffLimitExceeded'))
  })

  it('runs whatever its name, up to the limit of the API', async () => {
    await done(LONG_NAME)
  })

  it('starts when it is suspended no longer, and not after its deadline', async () => {
    const { status } = await atNamed('suspended')
    expect(status).toMatchObject({ phase: 'PENDING', conditions: [{ type: 'Suspended', status: 'True' }] })
    await kubectl(['patch', 'at', 'suspended', '--type=merge', '-p', '{"spec":{"suspend":false}}'])
    await done('suspended')
    expect((await atNamed('too-late')).status).toMatchObject({ phase: 'FAILED', reason: 'StartingDeadlineExceeded' })
  })

  it('that failed is tried again in another pod, with the same volumes and variables; one goes after its time to live, and its pod', async () => {
    await done('retried')
    expect((await atNamed('retried')).status).toMatchObject({ failures: 1, exitCode: 0 })
    const tries = await kubectl(['get', 'pods', '-l', 'kind=try', '-o', 'name'])
    expect(tries.trim().split('\n')).toHaveLength(2)
    expect(await kubectl(['logs', `${(await atNamed('retried')).status?.podName}`])).toBe('second\n')
    const left = async () => [...(await world.ats()), ...(await world.pods())].map(({ metadata }) => metadata.name)
    await until(async () => (await left()).every((name) => !name.startsWith('short-lived')))
  })

  async function queueState(name: string): Promise<string | undefined> {
    const { stdout } = await command(['queue', 'ls', '-o', 'json'], world.env)
    return (JSON.parse(stdout) as { name: string; state: string }[]).find((row) => row.name === name)?.state
  }
})
