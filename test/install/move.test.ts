import { writeFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { blocksOf } from '../docs/blocks.ts'
import { startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import { FORMER, functionWith, managersOfReplicas, memcached, startOperator, usePlace } from './memcached-operator.ts'

const place = usePlace()

it('by docs/guides/moving.md, a function takes all objects of an operator over in place, and gives them back', async () => {
  const { kubectl, read, shell, isGone, file, env } = place()
  const blocks = (await blocksOf('guides/moving')).filter(({ language }) => language === 'sh')
  const [check, mark, compare, beside, over, back, ...others] = blocks.map(({ text }) => text)
  expect(others).toEqual([])
  const replicas = async (name: string, count: number) => (await read(`deployment/${name}`)).spec.replicas === count
  const resize = (name: string, size: number) =>
    kubectl(['patch', `memcached/${name}`, '--type=merge', '-p', JSON.stringify({ spec: { size } })])
  const cleaner = async (name: string) => (await read(`configmap/${name}-cleaned`)).data?.by

  await using operator = await startOperator(place())
  for (const name of ['kept', 'early', 'waiting', 'late']) {
    await kubectl(['create', '-f', '-'], memcached(name))
    await until(() => replicas(name, 2))
  }
  const before = await read('deployment/kept')
  expect(managersOfReplicas(before)).toEqual(['memcached-operator Update'])

  // Nothing is installed: marks are all that is written, and each field that would change is named.
  await writeFile(file, functionWith({ image: 'memcached:1.5' }))
  expect(await shell(check)).toBe('KIND  NAME  RESULT\n')
  await shell(mark)
  expect(await shell(compare)).toMatch(/4 Deployment.*\n.*image: "memcached:1\.6" → "memcached:1\.5"/)
  await writeFile(file, functionWith())
  expect(await shell(compare)).not.toMatch(/\d Deployment/)
  expect(await shell(mark), 'all are marked').toBe('')

  await shell(beside)
  await using dry = startFairlead(['up', '-f', file], env)
  await dry.logged(({ msg, key }) => msg === 'dry run' && key === 'default/kept')
  await resize('kept', 3)
  await until(() => replicas('kept', 3))
  await kubectl(['delete', 'memcached/early', '--wait=false'])
  await until(() => isGone('memcached/early'))
  expect(await cleaner('early')).toBe('memcached-operator')
  expect((await read('memcached/kept')).metadata.finalizers).toEqual([FORMER])
  expect(managersOfReplicas(await read('deployment/kept'))).toEqual(['memcached-operator Update'])
  dry.kill('SIGTERM')
  await dry.exited

  await operator.stop()
  await kubectl(['delete', 'memcached/waiting', '--wait=false'])
  await writeFile(file, functionWith({ also: `formerFinalizers: ['${FORMER}'],` }))
  await shell(over)
  await using _up = startFairlead(['up', '-f', file], env)
  await until(() => isGone('memcached/waiting'))
  expect(await cleaner('waiting')).toBe('fairlead-memcached')
  await resize('kept', 1)
  await until(() => replicas('kept', 1))
  const taken = await read('deployment/kept')
  expect(taken.metadata).toMatchObject({
    uid: before.metadata.uid,
    ownerReferences: before.metadata['ownerReferences'],
  })
  expect(managersOfReplicas(taken)).toEqual(['fairlead-memcached Apply'])
  // The operator would add it again: it stays until the object goes.
  expect((await read('memcached/kept')).metadata.finalizers?.toSorted()).toEqual([FORMER, 'fairlead.dev/memcached'])

  await shell(back)
  expect((await read('memcached/kept')).metadata.finalizers).toEqual([FORMER])
  await using _again = await startOperator(place())
  await resize('kept', 3)
  await until(() => replicas('kept', 3))
  expect((await read('deployment/kept')).metadata.uid).toBe(before.metadata.uid)
  await kubectl(['delete', 'deployment/late'])
  await until(() => replicas('late', 2), { what: 'the operator knows the owner reference, and makes it again' })
  await kubectl(['delete', 'memcached/kept', '--wait=false'])
  await until(() => isGone('memcached/kept'))
  expect(await cleaner('kept')).toBe('memcached-operator')
})
