import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { jsonBlob, MEDIA, parseReference, Repository } from '#image'
import { registryServer } from '../../packages/lab/node/registry-server.ts'

let dir: string
let server: Server
let host: string

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-registry-'))
  server = (await registryServer(dir)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
  await rm(dir, { recursive: true, force: true })
})

const digestOf = (text: string): string => `sha256:${createHash('sha256').update(text).digest('hex')}`
const repository = (name: string) => new Repository(parseReference(`${host}/${name}`), { actions: 'pull,push' })
const url = (path: string): string => `http://${host}/v2/${path}`

describe('the registry of the local node', () => {
  it('gives back what was stored, by digest and by tag, in repositories with any name', async () => {
    const target = repository('team/sub/app')
    const config = jsonBlob(MEDIA.config, { os: 'linux' })
    const manifest = jsonBlob(MEDIA.manifest, { mediaType: MEDIA.manifest, config: config.digest })
    expect(await target.has(config.digest)).toBe(false)
    await target.push(config)
    await target.pushManifest(manifest, 'v1')
    expect(await target.has(config.digest)).toBe(true)
    expect(await target.read({ ...config, size: config.bytes.length })).toEqual(config.bytes)
    for (const reference of ['v1', manifest.digest])
      expect(await target.manifest(reference)).toMatchObject({ mediaType: MEDIA.manifest, digest: manifest.digest })
  })

  it('moves a tag', async () => {
    const target = repository('moved')
    const [one, other] = [1, 2].map((version) => jsonBlob(MEDIA.manifest, { mediaType: MEDIA.manifest, version }))
    await target.pushManifest(one!, 'latest')
    await target.pushManifest(other!, 'latest')
    expect((await target.manifest('latest')).digest).toBe(other!.digest)
    expect((await target.manifest(one!.digest)).digest).toBe(one!.digest)
  })

  it('refuses bytes that do not have their digest, and keeps nothing of them', async () => {
    const before = await readdir(join(dir, 'parts'))
    const begun = await fetch(url('app/blobs/uploads/'), { method: 'POST' })
    const location = new URL(begun.headers.get('location') ?? '', begun.url)
    location.searchParams.set('digest', digestOf('expected'))
    const refused = await fetch(location, { method: 'PUT', body: 'other' })
    expect([begun.status, refused.status]).toEqual([202, 400])
    expect(await refused.json()).toMatchObject({ errors: [{ code: 'DIGEST_INVALID' }] })
    expect(await readdir(join(dir, 'parts'))).toEqual(before)
  })

  it.each([
    'app/blobs/sha256:00',
    `app/blobs/${digestOf('absent')}`,
    'app/manifests/absent',
    `app/manifests/${digestOf('absent')}`,
    'app/manifests/..%2f..%2fregistry',
    'app/blobs/..%2f..%2fetc%2fpasswd',
    'app/tags/list',
  ])('does not know %s', async (path) => expect((await fetch(url(path))).status).toBe(404))

  it('answers that it is there', async () => expect((await fetch(url(''))).status).toBe(200))
})
