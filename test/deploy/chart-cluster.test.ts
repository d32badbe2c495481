import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { builtins } from '#functions'
import type { Cluster } from '#lab'
import { command } from '../support/command.ts'
import { CHART, FUNCTIONS_CHART, type Helm, helmIn, SYSTEM, TAKE_OVER } from '../support/helm.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'

const stack = new AsyncDisposableStack()
let dir: string
let cluster: Cluster
let helm: Helm
let kubectl: Kubectl

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-helm-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  // On the pretended node each Job succeeds, and nothing runs: hooks are waited for.
  cluster = stack.use(await startTestCluster({ controllers: true, node: 'kwok' }))
  kubectl = await kubectlFor(cluster)
  helm = await helmIn(dir, cluster.kubeconfig)
}, 600_000)
afterAll(() => stack.disposeAsync())

/** The chart of an earlier version, whose definition of Reconciler had one column less. */
async function earlier(): Promise<string> {
  const copy = join(dir, 'earlier')
  await cp(CHART, copy, { recursive: true })
  const change = async (path: string, from: RegExp, to: string) => {
    const text = await readFile(join(copy, path), 'utf8')
    expect(text).toMatch(from)
    await writeFile(join(copy, path), text.replace(from, to))
  }
  await change('Chart.yaml', /^version: .*$/m, 'version: 0.0.9')
  await change('templates/crds.yaml', / +- name: Synced\n.*\n.*Synced.*\n/, '')
  return copy
}

const columns = () =>
  kubectl([
    'get',
    'crd',
    'reconcilers.fairlead.dev',
    '-o',
    'jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}',
  ])
const replicas = () =>
  kubectl(['-n', 'fairlead-system', 'get', 'deployment/fairlead-bridge', '-o', 'jsonpath={.spec.replicas}'])
const AT = 'ats.cnat.programming-kubernetes.info'

const functions = await builtins()
const EACH = functions.flatMap(({ name }) => ['--set', `functions.${name}.enabled=true`])

describe('on a cluster, by Helm', () => {
  it('is installed, takes over what the command has installed, and says what comes next', async () => {
    expect(await command(['install', '--builtin', 'all'], { KUBECONFIG: cluster.kubeconfig })).toMatchObject({
      code: 0,
    })
    const said = await helm(['install', 'fairlead', await earlier(), ...SYSTEM, ...TAKE_OVER])
    expect(said).toContain('rollout status deployment/fairlead-dispatcher')
    expect(await columns()).not.toContain('Synced')
    expect(await replicas()).toBe('2')
    expect(await kubectl(['-n', 'fairlead-system', 'get', 'statefulset,service', '-o', 'name'])).toContain(
      'fairlead-nats',
    )
  })

  it('is upgraded with its definition, and rolled back', async () => {
    await helm(['upgrade', 'fairlead', CHART, ...SYSTEM, '--set', 'bridge.replicas=3'])
    expect(await columns()).toContain('Synced')
    expect(await replicas()).toBe('3')
    await helm(['rollback', 'fairlead', '1', ...SYSTEM])
    expect(await replicas()).toBe('2')
    await helm(['upgrade', 'fairlead', CHART, ...SYSTEM])
    expect(await helm(['history', 'fairlead', ...SYSTEM, '-o', 'json'])).toContain('"status":"deployed"')
  })

  it('leaves nothing of its hooks', async () => {
    expect(await kubectl(['-n', 'fairlead-system', 'get', 'job,role', '-o', 'name'])).toBe('')
  })

  it('has functions of a chart of their own', async () => {
    await helm(['install', 'functions', FUNCTIONS_CHART, ...SYSTEM, ...TAKE_OVER, ...EACH])
    await kubectl(['wait', '--for=condition=Established', `crd/${AT}`])
    const spec = { schedule: '2100-01-01T00:00:00Z', command: 'x' }
    await kubectl(['apply', '-f', '-'], { ...AT_OBJECT, spec })
    expect(await kubectl(['get', 'reconcilers', '-o', 'name'])).toContain('reconciler.fairlead.dev/etcd-backup')
  })

  it('is not upgraded where that would delete objects: their function is not enabled, and nothing keeps its definition', async () => {
    const upgrade = (...sets: string[]) =>
      helm(['upgrade', 'functions', FUNCTIONS_CHART, ...SYSTEM, '--reset-values', ...sets])
    await upgrade(...EACH, '--set', 'crds.keep=false')
    for (const sets of [[], [...EACH, '--set', 'crds.enabled=false']])
      await expect(upgrade(...sets)).rejects.toThrow(/and all its objects: give --set functions\.[\w-]+\.enabled=true,/)
    expect(await kubectl(['get', 'at', '-o', 'name'])).toContain('/later')
    await upgrade(...EACH)
    await upgrade()
    expect(await kubectl(['get', 'reconcilers', '-o', 'name'])).toBe('')
    expect(await kubectl(['get', 'at', '-o', 'name'])).toContain('/later')
    await upgrade(...EACH)
  })

  it('is checked before an upgrade: nothing changes where stored objects would not survive', async () => {
    const env = { KUBECONFIG: cluster.kubeconfig }
    expect(await command(['install', '--builtin', 'all', '--check'], env)).toMatchObject({ code: 0 })
    const properties = '/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties'
    const more = [{ op: 'add', path: `${properties}/extra`, value: { type: 'string' } }]
    await kubectl(['patch', 'crd', AT, '--type=json', '-p', JSON.stringify(more)])
    const { code, stderr } = await command(['install', '--builtin', 'all', '--check'], env)
    expect(stderr).toContain(`${AT} would break objects that are stored`)
    expect(code).toBe(1)
    const hooks = await helm(['get', 'hooks', 'functions', ...SYSTEM])
    expect(hooks).toMatch(/args:\n\s+- install\n\s+- --check\n\s+- --builtin\n\s+- "all"/)
  })

  it('is uninstalled, and definitions and objects stay', async () => {
    await helm(['uninstall', 'functions', ...SYSTEM])
    await helm(['uninstall', 'fairlead', ...SYSTEM])
    expect(await kubectl(['get', 'reconcilers', '-o', 'name'])).toBe('')
    expect(
      await kubectl(['-n', 'fairlead-system', 'get', 'deployment,statefulset,serviceaccount', '-o', 'name']),
    ).not.toContain('fairlead')
    expect(await kubectl(['get', 'at', '-o', 'name'])).toContain('/later')
  })

  describe('as a small installation', () => {
    const upgrade = (...sets: string[]) =>
      helm(['upgrade', '--install', 'fairlead', CHART, ...SYSTEM, ...sets.flatMap((set) => ['--set', set])])
    const ofPod = (jsonpath: string) =>
      kubectl(['-n', 'fairlead-system', 'get', 'pod/fairlead-small-0', '-o', `jsonpath={${jsonpath}}`])
    const CONTAINER = '.spec.containers[?(@.name=="fairlead")]'

    it('replaces a pod that never gets ready', async () => {
      await upgrade('small=true', 'image.tag=broken')
      await until(async () => expect(await ofPod(`${CONTAINER}.image`)).toBe('fairlead:broken'))
      await upgrade('small=true', 'image.tag=mended')
      await until(async () => expect(await ofPod(`${CONTAINER}.image`)).toBe('fairlead:mended'))
      expect(await ofPod('.status.conditions[?(@.type=="Ready")].status')).not.toBe('True')
    })

    it('becomes a large one after its streams are copied, and the step can be undone until then', async () => {
      await expect(upgrade('small=false')).rejects.toThrow('small was true: set small to move first')
      await upgrade('small=move')
      await expect(upgrade('small=false')).rejects.toThrow('are not copied yet')
      await upgrade('small=true')
      await upgrade('small=move')
      await kubectl(['apply', '-f', '-'], VOLUME)
      await until(() => upgrade('small=false'))
      expect(await kubectl(['-n', 'fairlead-system', 'get', 'statefulset', '-o', 'name'])).toBe(
        'statefulset.apps/fairlead-nats\n',
      )
    })

    it('does not come back with an old volume', async () => {
      const { message } = await upgrade('small=true').then(
        () => new Error('was upgraded'),
        (error: Error) => error,
      )
      const [, told = ''] = /other bridges or NATS servers are there: .*: kubectl (.*)/.exec(message) ?? []
      await kubectl(told.trim().split(' '))
      await upgrade('small=true')
      await helm(['uninstall', 'fairlead', ...SYSTEM])
    })
  })

  it('is applied by kubectl as well, as Argo CD and Flux do it', async () => {
    const apply = async (chart: string, ...sets: string[]) =>
      kubectl(['apply', '-f', '-'], await helm(['template', 'fairlead', chart, ...SYSTEM, ...sets]))
    expect(await apply(CHART)).toContain('deployment.apps/fairlead-bridge created')
    expect(await apply(FUNCTIONS_CHART, ...EACH)).toContain('reconciler.fairlead.dev/at created')
    expect(await apply(CHART)).not.toContain('created')
  })
})

const AT_OBJECT = {
  apiVersion: 'cnat.programming-kubernetes.info/v1alpha1',
  kind: 'At',
  metadata: { name: 'later', namespace: 'default' },
}

/** For the claim of the small installation. */
const VOLUME = {
  apiVersion: 'v1',
  kind: 'PersistentVolume',
  metadata: { name: 'small' },
  spec: {
    accessModes: ['ReadWriteOnce'],
    capacity: { storage: '10Gi' },
    claimRef: { namespace: 'fairlead-system', name: 'data-fairlead-small-0' },
    hostPath: { path: '/none' },
  },
}
