import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { createKubeClient, loadKubeConfig } from '#kube'
import { readConfig } from '../../cli/process/config.ts'
import { clusterId, openFollowedKube } from '../../cli/process/kube.ts'
import { json, startScriptedServer } from '../kube/scripted-server.ts'

let dir: string
let file: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-followed-'))
  file = join(dir, 'config')
})
afterAll(() => rm(dir, { recursive: true }))

const base64 = (text: string | undefined) => Buffer.from(text ?? '').toString('base64')

it('a new token of the same server is used when the old one is refused; one of another server is never sent to it', async () => {
  let accepted = 'first'
  await using old = await startScriptedServer(({ headers }, response) =>
    json(response, headers.authorization === `Bearer ${accepted}` ? 200 : 401, {}),
  )
  await using other = await startScriptedServer((_request, response) => json(response, 200, {}))
  const write = ({ access }: typeof old, token: string) =>
    writeFile(
      file,
      stringify({
        'current-context': 'c',
        contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
        clusters: [{ name: 'c', cluster: { server: access.server, 'certificate-authority-data': base64(access.ca) } }],
        users: [{ name: 'u', user: { token } }],
      }),
    )
  await write(old, 'first')
  await using kube = await openFollowedKube(readConfig({ KUBECONFIG: file }))
  await kube.get('/version')
  accepted = 'second'
  await write(old, 'second')
  await kube.get('/version')
  await write(other, 'of another')
  accepted = 'third'
  await expect(kube.get('/version')).rejects.toThrow('401')
  expect(new Set(old.requests.map(({ headers }) => headers.authorization))).toEqual(
    new Set(['Bearer first', 'Bearer second']),
  )
  expect(other.requests).toEqual([])
})

it('a kubeconfig is parsed again only when it has changed: each of a hundred clusters reads it every few seconds', async () => {
  const names = Array.from({ length: 100 }, (_, nth) => `c${nth}`)
  const filler = base64('x'.repeat(3000))
  await writeFile(
    file,
    stringify({
      contexts: names.map((name) => ({ name, context: { cluster: name, user: name } })),
      clusters: names.map((name) => ({ name, cluster: { server: `https://${name}:6443`, extra: filler } })),
      users: names.map((name) => ({ name, user: { token: name } })),
    }),
  )
  const cpuOf = async (times: number) => {
    const before = process.cpuUsage()
    for (let time = 0; time < times; time++)
      expect(await loadKubeConfig({ paths: [file], context: `c${time}` })).toMatchObject({
        server: `https://c${time}:6443`,
      })
    const { user, system } = process.cpuUsage(before)
    return user + system
  }
  const first = await cpuOf(1)
  expect(await cpuOf(30)).toBeLessThan(10 * first)
})

it('a server that is asked which cluster it is of cannot fill the memory of the process', async () => {
  const labels = { large: 'x'.repeat(3 * 2 ** 20) }
  await using server = await startScriptedServer((_request, response) =>
    json(response, 200, { metadata: { uid: 'u', labels } }),
  )
  await using kube = createKubeClient({ ...server.access, userAgent: 'test' })
  await expect(clusterId(kube)).rejects.toThrow('the answer is larger than 2097152 bytes')
})
