import { expect, it } from 'vitest'
import { createKubeClient } from '#kube'
import { json, startScriptedServer } from './scripted-server.ts'

const MIB = 2 ** 20
/** Small ones around large ones, in the order of their names. */
const sizes = [...Array(600).fill(100), ...Array(16).fill(MIB), ...Array(3000).fill(100)] as number[]
const objects = sizes.map((size, number) => ({ metadata: { name: `n${number}` }, data: 'x'.repeat(size) }))

it('a list has pages of bounded size, and larger ones again behind large objects', async () => {
  const pages: { limit: number; bytes: number }[] = []
  await using server = await startScriptedServer((request, response) => {
    const query = new URL(request.url ?? '', 'https://x').searchParams
    const from = Number(query.get('continue'))
    const limit = Number(query.get('limit'))
    const items = objects.slice(from, from + limit)
    const next = from + limit < objects.length ? { continue: `${from + limit}` } : {}
    const list = { apiVersion: 'v1', kind: 'ConfigMapList', metadata: { resourceVersion: '1', ...next }, items }
    pages.push({ limit, bytes: items.reduce((sum, { data }) => sum + data.length, 0) })
    json(response, 200, list)
  })
  await using kube = createKubeClient({ userAgent: 'test/1', ...server.access })
  const names: string[] = []
  let largest = 0
  for await (const { items } of kube.list('/api/v1/configmaps')) {
    names.push(...items.map(({ metadata }) => metadata.name))
    largest = Math.max(largest, JSON.stringify(items).length)
  }
  expect(names).toEqual(objects.map(({ metadata }) => metadata.name))
  expect(largest).toBeLessThan(9 * MIB)
  expect(Math.min(...pages.map(({ limit }) => limit))).toBe(7)
  expect(pages.at(-1)?.limit).toBeGreaterThan(100)
  // Asked for in vain: six times half as many.
  expect(pages.filter(({ bytes }) => bytes > 8 * MIB)).toHaveLength(6)
})

it('an object that is larger than a page is listed all the same', async () => {
  await using server = await startScriptedServer((_, response) => {
    const items = [{ metadata: { name: 'a' }, data: 'x'.repeat(9 * MIB) }]
    json(response, 200, { apiVersion: 'v1', kind: 'ConfigMapList', metadata: { resourceVersion: '1' }, items })
  })
  await using kube = createKubeClient({ userAgent: 'test/1', ...server.access })
  const [page] = await Array.fromAsync(kube.list('/api/v1/configmaps'))
  expect(page?.items).toHaveLength(1)
})
