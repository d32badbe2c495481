import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { credentialsFor, parseChallenge } from '../../packages/image/credentials.ts'

let dir: string
let env: NodeJS.ProcessEnv
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-credentials-'))
  await mkdir(join(dir, 'bin'))
  env = { PATH: `${join(dir, 'bin')}:${process.env['PATH']}`, HOME: dir, DOCKER_CONFIG: join(dir, 'docker') }
  await mkdir(join(dir, 'docker'))
})
afterAll(() => rm(dir, { recursive: true }))

const base64 = (text: string) => Buffer.from(text).toString('base64')
const stored = async (config: object | string) => {
  await writeFile(join(dir, 'docker/config.json'), typeof config === 'string' ? config : JSON.stringify(config))
}
const of = (registry: string, repository = 'team/app') => credentialsFor({ registry, repository }, env)
const helper = async (name: string, script: string) => {
  const file = join(dir, 'bin', `docker-credential-${name}`)
  await writeFile(file, `#!/bin/sh\nread server\n${script}\n`)
  await chmod(file, 0o755)
}

describe('credentials of a registry', () => {
  it('are those that docker login has stored, and of no other registry', async () => {
    await stored({ auths: { 'r.example.com': { auth: base64('alice:a:b') } } })
    expect(await of('r.example.com')).toEqual({ username: 'alice', password: 'a:b' })
    expect(await of('other.example.com')).toBeUndefined()
  })

  it('are an identity token where the registry has given one', async () => {
    await stored({ auths: { 'r.example.com': { identitytoken: 'xyz' } } })
    expect(await of('r.example.com')).toEqual({ identityToken: 'xyz' })
  })

  it('of Docker Hub are under its old address', async () => {
    await stored({ auths: { 'https://index.docker.io/v1/': { auth: base64('a:b') } } })
    expect(await of('docker.io')).toEqual({ username: 'a', password: 'b' })
  })

  it('of a part of a registry count before those of the whole', async () => {
    await stored({
      auths: { 'r.example.com': { auth: base64('all:1') }, 'r.example.com/team': { auth: base64('team:2') } },
    })
    expect(await of('r.example.com')).toEqual({ username: 'team', password: '2' })
    expect(await of('r.example.com', 'x')).toEqual({ username: 'all', password: '1' })
  })

  it('come from the helper of that registry, or from the one of all', async () => {
    await helper('one', 'echo "{\\"Username\\": \\"of-$server\\", \\"Secret\\": \\"s\\"}"')
    await helper('all', 'echo "{\\"Username\\": \\"<token>\\", \\"Secret\\": \\"t\\"}"')
    await stored({ credHelpers: { 'r.example.com': 'one' }, credsStore: 'all', auths: { 'b.example.com': {} } })
    expect(await of('r.example.com')).toEqual({ username: 'of-r.example.com', password: 's' })
    expect(await of('b.example.com')).toEqual({ identityToken: 't' })
  })

  it('are none where the helper has none', async () => {
    await helper('empty', 'echo "credentials not found in native keychain"; exit 1')
    await stored({ credsStore: 'empty' })
    expect(await of('r.example.com')).toBeUndefined()
  })

  it.each([
    [{ credsStore: 'nowhere' }, /docker-credential-nowhere.*cannot be run/],
    [{ credsStore: 'broken' }, /docker-credential-broken has failed for r.example.com: locked/],
    [{ auths: { 'r.example.com': { auth: 'nonsense' } } }, /of r.example.com cannot be read: log in/],
    ['{', /config.json cannot be read/],
  ])('%j is said', async (config, message) => {
    await helper('broken', 'echo locked; exit 2')
    await stored(config)
    await expect(of('r.example.com')).rejects.toThrow(message)
  })
})

describe('a challenge of a registry', () => {
  it('is read with its parameters', () => {
    expect(parseChallenge('Bearer realm="https://auth.example.com/t",service="r", scope=x')).toEqual({
      scheme: 'bearer',
      parameters: { realm: 'https://auth.example.com/t', service: 'r', scope: 'x' },
    })
    expect(parseChallenge('Basic realm="a, b"')).toEqual({ scheme: 'basic', parameters: { realm: 'a, b' } })
    expect(parseChallenge(null)).toBeUndefined()
  })
})
