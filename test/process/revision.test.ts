import { afterAll, beforeAll, expect, it } from 'vitest'
import { readConfig } from '../../cli/process/config.ts'
import { ownRevision } from '../../cli/process/runtime.ts'
import { pod, startFixture } from '../dispatch/fixture.ts'

const DIGEST = `sha256:${'0f'.repeat(32)}`
const NAMESPACE = 'own-revision'
const PATH = `/api/v1/namespaces/${NAMESPACE}/pods`
const inPod = { POD_NAME: 'd-1', POD_NAMESPACE: NAMESPACE, POD_CONTAINER: 'dispatcher' }

let fixture: Awaited<ReturnType<typeof startFixture>>
beforeAll(async () => {
  fixture = await startFixture()
  await fixture.kube.create('/api/v1/namespaces', { metadata: { name: NAMESPACE } })
  await fixture.kube.create(`/api/v1/namespaces/${NAMESPACE}/serviceaccounts`, { metadata: { name: 'default' } })
  await fixture.kube.create(PATH, pod('d-1'))
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

/** Reports the image as a kubelet does. */
function runs(imageID: string): Promise<unknown> {
  const status = (name: string, id: string) => ({ name, imageID: id, image: 'x', ready: true, restartCount: 0 })
  const containerStatuses = [status('proxy', `x@sha256:${'aa'.repeat(32)}`), status('dispatcher', imageID)]
  return fixture.kube.patch(`${PATH}/d-1/status`, { status: { containerStatuses } }, 'merge')
}

async function revisionOf(env: Record<string, string>, pause: () => Promise<unknown> = async () => undefined) {
  const warned: string[] = []
  const log = { warn: (_: object, message: string) => void warned.push(message) }
  let pauses = 0
  const revision = await ownRevision(fixture.kube, readConfig(env), log, () => (pauses++, pause()))
  return { revision, pauses, warned: warned.length }
}

it('the revision of the functions in a process is the digest of its image, once the kubelet has said it', async () => {
  expect(await revisionOf(inPod)).toEqual({ revision: undefined, pauses: 10, warned: 1 })
  expect(await revisionOf(inPod, () => runs(`r.io/f@${DIGEST}`))).toEqual({ revision: DIGEST, pauses: 1, warned: 0 })
  expect(await revisionOf(inPod)).toEqual({ revision: DIGEST, pauses: 0, warned: 0 })
})

it.each([
  ['is what the variable says', { ...inPod, FAIRLEAD_REVISION: 'v2' }, 'v2', 0],
  ['is not known outside of a pod', {}, undefined, 0],
  ['is not known where the pod cannot be read, which is logged', { ...inPod, POD_NAME: 'd-2' }, undefined, 1],
])('the revision of the functions in a process %s', async (_, env, revision, warned) =>
  expect(await revisionOf(env)).toEqual({ revision, pauses: 0, warned }),
)

it('a revision of more than 253 characters is refused', () =>
  expect(() => readConfig({ FAIRLEAD_REVISION: 'x'.repeat(254) })).toThrow('FAIRLEAD_REVISION'))
