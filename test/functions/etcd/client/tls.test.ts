import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EtcdTls, GRPC } from '#functions/etcd/client'
import { issueFrom, newAuthority } from '#pki'
import { SOON, TestEtcd } from '../../../support/etcd.ts'
import { shortTempDir } from '../../../support/servers.ts'

const validity = { now: new Date(), days: 1 }
const ca = newAuthority({ cn: 'test' }, validity)
const NAME = 'a.ex.default.svc'

const pem = ({ certificate, privateKey }: ReturnType<typeof issueFrom>) => ({
  cert: certificate,
  key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
})
const client = (cn: string): EtcdTls => ({
  ca: ca.certificate,
  ...pem(issueFrom(ca, { subject: { cn } }, validity)),
  servername: NAME,
})

describe('a client of etcd over TLS', () => {
  let servers: TestEtcd
  beforeAll(async () => {
    const dir = await shortTempDir()
    const server = pem(issueFrom(ca, { subject: { cn: 'server' }, sans: ['*.ex.default.svc'] }, validity))
    await mkdir(dir, { recursive: true })
    for (const [file, text] of Object.entries({ ca: ca.certificate, ...server })) await writeFile(join(dir, file), text)
    servers = await TestEtcd.open(client('root'))
    await servers.start('a', {
      args: [
        '--client-cert-auth',
        `--trusted-ca-file=${join(dir, 'ca')}`,
        `--cert-file=${join(dir, 'cert')}`,
        `--key-file=${join(dir, 'key')}`,
      ],
    })
    await servers.serves('a')
  })
  afterAll(() => servers[Symbol.asyncDispose]())

  it('dials an address and checks the name of the member', async () => {
    using etcd = servers.open('a')
    expect((await etcd.call('status', {}, SOON)).version).toBeTruthy()
    expect(etcd.certificate?.issuer).toBe('CN=test')
  })

  it.each([
    ['the name is another one', { servername: 'a.other.default.svc' }],
    ['the authority is another one', { ca: newAuthority({ cn: 'test' }, validity).certificate }],
    ['it has no certificate', { cert: '', key: '' }],
  ])('is refused when %s', async (_, change) => {
    using etcd = servers.open('a', { ...client('root'), ...change })
    await expect(etcd.call('status', {}, SOON)).rejects.toMatchObject({
      code: GRPC.unavailable,
      message: expect.stringMatching(/^Status: /),
    })
  })

  it('is root by the common name of its certificate when authentication is on', async () => {
    using root = servers.open('a')
    using other = servers.open('a', client('other'))
    await root.call('roleAdd', { name: 'root' }, SOON)
    await root.call('userAdd', { name: 'root', options: { no_password: true } }, SOON)
    await root.call('userGrantRole', { user: 'root', role: 'root' }, SOON)
    await root.call('authEnable', {}, SOON)
    expect(await root.call('authStatus', {}, SOON)).toMatchObject({ enabled: true })
    await root.call('put', { key: Buffer.from('k'), value: Buffer.from('v') }, SOON)
    await expect(other.call('put', { key: Buffer.from('k'), value: Buffer.from('w') }, SOON)).rejects.toThrow(
      'permission',
    )
    await expect(root.call('userAdd', { name: 'root', options: { no_password: true } }, SOON)).rejects.toThrow(
      'already exists',
    )
  })
})
