import { spawnSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { blocksOf } from '../docs/blocks.ts'
import { startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import {
  CONTROLLER,
  FORMER,
  functionWith,
  managersOfReplicas,
  memcached,
  startOperator,
  usePlace,
} from './memcached-operator.ts'

const lacksJq = spawnSync('sh', ['-c', 'command -v jq']).status !== 0
if (lacksJq) console.log('The commands of docs/deploy/leave.md are not run: this machine lacks jq')

const place = usePlace()

const marksOf = ({ metadata }: KubeObject) =>
  Object.keys(metadata.annotations ?? {}).filter((name) => name.includes('fairlead.dev'))

/** Everything that a function can leave behind, and a field that the operator does not have. */
const FUNCTION = functionWith({
  also: "writes: ['Metadata'],",
  outcome: "metadata: { labels: { seen: 'yes' } },",
  spec: 'paused: true,',
})

it.skipIf(lacksJq)(
  'by docs/deploy/leave.md, an operator with server-side apply takes over every object in place, and no mark is left',
  async () => {
    const { kubectl, read, shell, file, env } = place()
    const blocks = await blocksOf('deploy/leave')
    const [stop, unmark, forget, ...others] = blocks.flatMap(({ language, text }) => (language === 'sh' ? [text] : []))
    expect(others).toEqual([])
    const apply = blocks.find(({ language }) => language === 'go')?.text
    expect(await readFile(CONTROLLER, 'utf8')).toContain(apply?.trim())

    await writeFile(file, FUNCTION)
    await shell('npx fairlead install -f src/index.ts')
    await using _up = startFairlead(['up', '-f', file], env)
    await kubectl(['create', '-f', '-'], memcached('hello'))
    await until(async () => (await read('memcached/hello')).status?.conditions !== undefined)
    // A change: the function has created the Deployment, and applied it.
    const resize = (spec: object) =>
      kubectl(['patch', 'memcached/hello', '--type=merge', '-p', JSON.stringify({ spec })])
    await resize({ size: 3 })
    await until(async () => (await read('deployment/hello')).spec.replicas === 3)
    const before = { memcached: await read('memcached/hello'), deployment: await read('deployment/hello') }
    expect(before.memcached.metadata.finalizers).toEqual(['fairlead.dev/memcached'])
    expect(marksOf(before.memcached)).toEqual(['metadata.fairlead.dev/memcached'])
    expect(marksOf(before.deployment).toSorted()).toEqual(['fairlead.dev/desired', 'fairlead.dev/reconciler'])
    expect(managersOfReplicas(before.deployment)).toEqual(['fairlead-memcached Apply'])

    expect(await shell(stop)).toContain('deployment.apps/hello')
    expect((await read('memcached/hello')).metadata).toMatchObject({ uid: before.memcached.metadata.uid })
    expect((await read('memcached/hello')).metadata.finalizers).toBeUndefined()
    await expect(kubectl(['get', 'reconciler/memcached'])).rejects.toThrow('NotFound')

    const image = '--image=memcached:1.7'
    {
      await using refused = await startOperator(place(), ['--write=apply', image])
      await refused.logged('conflict with \\"fairlead-memcached\\"')
    }
    await using _operator = await startOperator(place(), ['--write=force', image])
    const container = async () => (await read('deployment/hello')).spec.template.spec.containers[0]
    await until(async () => (await container())?.image === 'memcached:1.7')
    await shell(unmark)
    const taken = await read('deployment/hello')
    const { ownerReferences } = taken.metadata
    expect(ownerReferences).toMatchObject([{ kind: 'Memcached', name: 'hello', controller: true }])
    expect(taken.metadata).toMatchObject({ uid: before.deployment.metadata.uid })
    expect([...marksOf(taken), ...marksOf(await read('memcached/hello'))]).toEqual([])
    expect((await read('memcached/hello')).metadata.finalizers).toEqual([FORMER])
    // The operator does not set it.
    expect(taken.spec.paused).toBe(true)
    expect(managersOfReplicas(taken)).toEqual(['fairlead-memcached Apply', 'memcached-operator Apply'])

    // A field that the operator drops goes only when Fairlead does not own it too.
    const withPort = async (containerPort: number | null, size: number) => {
      await resize({ containerPort, size })
      await until(async () => (await read('deployment/hello')).spec.replicas === size)
      return (await container())?.ports
    }
    expect(await withPort(null, 1)).toHaveLength(1)
    await withPort(11211, 2)
    await shell(forget)
    expect(await withPort(null, 1)).toBeUndefined()
    expect((await read('deployment/hello')).metadata).toMatchObject({
      uid: before.deployment.metadata.uid,
      ownerReferences,
    })
  },
)
