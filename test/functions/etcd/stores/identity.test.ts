import { mkdir, writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { agentContainer } from '../../../../functions/etcd/backup/agent-pod.ts'
import { startCloudFront } from '../../../support/cloud-front.ts'
import { TestEtcd } from '../../../support/etcd.ts'
import { type Finished, fairlead } from '../../../support/fairlead.ts'
import { startFaultyProxy } from '../../../support/faulty-proxy.ts'
import { startHttpReceiver } from '../../../support/http-receiver.ts'
import {
  ACCOUNT,
  BUCKET,
  newTls,
  S3_CREDENTIALS,
  startAbs,
  startGcs,
  startS3,
  type TestStore,
} from '../../../support/object-stores.ts'
import { shortTempDir } from '../../../support/servers.ts'

const TOKEN = 'token-of-a-service-account'
const KEY = 'snapshot'

/** The variables of the container in each pod of the agent. */
const OF_POD = Object.fromEntries(
  (agentContainer({ name: 'agent', image: 'x', args: [], secrets: [] }).env ?? []).map(({ name, value = '' }) => [
    name,
    value,
  ]),
)

let etcd: TestEtcd
beforeAll(async () => {
  etcd = await TestEtcd.open()
  await etcd.start('a')
  await etcd.serves('a')
})
afterAll(() => etcd?.[Symbol.asyncDispose]())

/** Runs the agent of a pod without a Secret. */
function backup(store: string, env: Record<string, string>, endpoint?: string): Promise<Finished> {
  const from = `--endpoints=${etcd.clientUrl('a')}`
  const args = ['etcd-agent', 'backup', from, `--store=${store}`, `--path=${BUCKET}/${KEY}`]
  return fairlead([...args, ...(endpoint === undefined ? [] : [`--endpoint=${endpoint}`])], { ...OF_POD, ...env })
}

/** Compares the report of the agent with what the Secret of the store finds. */
async function expectStored({ stdout, stderr }: Finished, { store }: TestStore): Promise<void> {
  expect(stderr).toBe('')
  const { size } = JSON.parse(stdout) as { size: number }
  expect((await store.head(KEY))?.size).toBe(size)
}

async function file(text: string): Promise<string> {
  const dir = join(await shortTempDir(), 'identity')
  await mkdir(dir)
  const path = join(dir, 'file')
  await writeFile(path, text)
  return path
}

const inAnHour = () => new Date(Date.now() + 3_600_000).toISOString()

describe('a pod without a Secret of its store, on AWS', () => {
  it('takes the role of its ServiceAccount (IRSA), and shows its token to the token service only', async () => {
    await using server = await startS3()
    const { accessKeyId, secretAccessKey } = S3_CREDENTIALS
    let session = '<SessionToken>session</SessionToken>'
    await using sts = await startHttpReceiver((_, response) =>
      response.writeHead(200, { 'content-type': 'text/xml' }).end(
        `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
        <AccessKeyId>${accessKeyId}</AccessKeyId><SecretAccessKey>${secretAccessKey}</SecretAccessKey>
        ${session}<Expiration>${inAnHour()}</Expiration>
        </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
      ),
    )
    const seen: unknown[] = []
    await using proxy = await startFaultyProxy(server.url, (_, __, headers) => {
      seen.push(headers['x-amz-security-token'])
      return undefined
    })
    const env = {
      AWS_ROLE_ARN: 'arn:aws:iam::123456789012:role/backups',
      AWS_WEB_IDENTITY_TOKEN_FILE: await file(TOKEN),
      AWS_REGION: 'us-east-1',
      AWS_ENDPOINT_URL_STS: sts.url,
    }
    // versitygw has no sessions.
    expect((await backup('s3', env, proxy.url)).stderr).toMatch(/400 InvalidToken .*: name a Secret, or bind/)
    expect(new Set(seen)).toEqual(new Set(['session']))
    session = ''
    await expectStored(await backup('s3', env, proxy.url), server)
    const asked = sts.received.map(({ body }) => new URLSearchParams(body.toString()))
    const shown = asked.map((form) => [form.get('RoleArn'), form.get('WebIdentityToken')])
    const once = [env.AWS_ROLE_ARN, TOKEN]
    expect(shown).toEqual([once, once])
  })

  it('says what the token service refuses, and not the token', async () => {
    const refusal =
      '<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>'
    await using sts = await startHttpReceiver((_, response) =>
      response.writeHead(403, { 'content-type': 'text/xml' }).end(refusal),
    )
    const env = {
      AWS_ROLE_ARN: 'arn:aws:iam::123456789012:role/backups',
      AWS_WEB_IDENTITY_TOKEN_FILE: await file(TOKEN),
      AWS_ENDPOINT_URL_STS: sts.url,
    }
    const { code, stderr } = await backup('s3', env, 'http://127.0.0.1:9')
    expect(code).toBe(1)
    expect(stderr).toMatch(/no credentials: .*AssumeRoleWithWebIdentity: name a Secret, or bind the ServiceAccount/)
    expect(stderr).not.toContain(TOKEN)
  })

  it('says that it has not finished in time, and ends, although the token service is silent', async () => {
    await using sts = await startHttpReceiver(() => {})
    const env = {
      AWS_ROLE_ARN: 'arn:aws:iam::123456789012:role/backups',
      AWS_WEB_IDENTITY_TOKEN_FILE: await file(TOKEN),
      AWS_ENDPOINT_URL_STS: sts.url,
    }
    const args = ['etcd-agent', 'verify', '--store=s3', `--path=${BUCKET}/${KEY}`, '--timeout=1']
    const { code, stderr } = await fairlead([...args, '--endpoint=http://127.0.0.1:9'], { ...OF_POD, ...env })
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: 'fairlead: not finished within 1 s: give it a longer timeout\n',
    })
  })

  it('takes the role of its ServiceAccount by EKS Pod Identity', async () => {
    await using server = await startS3()
    const { accessKeyId: AccessKeyId, secretAccessKey: SecretAccessKey } = S3_CREDENTIALS
    await using agent = await startHttpReceiver((_, response) =>
      response.end(JSON.stringify({ AccessKeyId, SecretAccessKey, Token: '', Expiration: inAnHour() })),
    )
    const env = {
      AWS_CONTAINER_CREDENTIALS_FULL_URI: `${agent.url}/v1/credentials`,
      AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: await file(TOKEN),
    }
    await expectStored(await backup('s3', env, server.url), server)
    expect(agent.received.map(({ headers }) => headers.authorization)).toEqual([TOKEN])
  })

  it('does not take the role of the node, which its pods share', async () => {
    await using node = await startHttpReceiver((_, response) => response.end('token'))
    const { code, stderr } = await backup('s3', { AWS_EC2_METADATA_SERVICE_ENDPOINT: node.url }, 'http://127.0.0.1:9')
    expect(code).toBe(1)
    expect(stderr).toMatch(/s3:\/\/backups\/snapshot.*: no credentials: .*name a Secret, or bind the ServiceAccount/)
    expect(node.received).toEqual([])
  })
})

describe('a pod without a Secret of its store, on GKE', () => {
  it('takes the identity of its ServiceAccount from the metadata server', async () => {
    await using server = await startGcs()
    await using metadata = await startHttpReceiver(({ url }, response) =>
      response
        .writeHead(200, { 'metadata-flavor': 'Google', 'content-type': 'application/json' })
        .end(url.includes('/token') ? JSON.stringify({ access_token: 'drawn', expires_in: 3600 }) : '{}'),
    )
    const seen = new Set<string | undefined>()
    await using google = await startCloudFront({
      'storage.googleapis.com': (body, request, response) => {
        seen.add(request.headers.authorization)
        void forwarded(server.url, body, request, response)
      },
    })
    const env = {
      ...google.env,
      NODE_EXTRA_CA_CERTS: await file(google.ca),
      GCE_METADATA_HOST: new URL(metadata.url).host,
    }
    await expectStored(await backup('gcs', env), server)
    expect(seen).toEqual(new Set(['Bearer drawn']))
    const asked = metadata.received.map(({ url }) => url).filter((url) => url.includes('/token'))
    const path = '/computeMetadata/v1/instance/service-accounts/default/token'
    expect(new Set(asked.map((url) => url.replace(/\?.*/, '')))).toEqual(new Set([path]))
  })
})

describe('a pod without a Secret of its store, on Azure', () => {
  it('takes the identity of its ServiceAccount, for the account of the endpoint', async () => {
    const host = `${ACCOUNT.account}.blob.core.windows.net`
    const tls = newTls([host, '127.0.0.1'])
    await using server = await startAbs({ tls })
    const asked: URLSearchParams[] = []
    await using azure = await startCloudFront({
      'login.microsoftonline.com': (body, request, response) => {
        response.setHeader('content-type', 'application/json')
        if (request.url?.includes('/oauth2/v2.0/token') !== true) return void response.writeHead(404).end('{}')
        asked.push(new URLSearchParams(body))
        response.end(JSON.stringify({ token_type: 'Bearer', expires_in: 3600, access_token: tokenOfAzure() }))
      },
      [host]: new URL(new URL(server.url).origin),
    })
    const env = {
      ...azure.env,
      NODE_EXTRA_CA_CERTS: await file(`${azure.ca}\n${tls.ca}`),
      AZURE_CLIENT_ID: '11111111-1111-1111-1111-111111111111',
      AZURE_TENANT_ID: '22222222-2222-2222-2222-222222222222',
      AZURE_AUTHORITY_HOST: 'https://login.microsoftonline.com/',
      AZURE_FEDERATED_TOKEN_FILE: await file(TOKEN),
    }
    await expectStored(await backup('abs', env, `https://${host}`), server)
    const shown = asked.map((form) => [form.get('client_id'), form.get('client_assertion')])
    expect(shown).toEqual([[env.AZURE_CLIENT_ID, TOKEN]])
  })

  it('says what it lacks, and asks the node for nothing', async () => {
    await using azure = await startCloudFront({})
    const { code, stderr } = await backup('abs', azure.env, `https://${ACCOUNT.account}.blob.core.windows.net`)
    expect(code).toBe(1)
    expect(stderr).toMatch(/no credentials: .*: name a Secret, or bind the ServiceAccount of the pod to an identity/)
    expect(azure.connections).toEqual([])
  })

  it('names its account by the endpoint', async () => {
    const { code, stderr } = await backup('abs', {})
    expect(code).toBe(1)
    expect(stderr).toContain('name the account by the endpoint https://ACCOUNT.blob.core.windows.net')
  })
})

it.each([
  ['abs', 'https://storage.example.com'],
  ['abs', 'https://account.blob.core.windows.net.example.com'],
  ['abs', 'http://account.blob.core.windows.net'],
  ['gcs', 'https://storage.example.com'],
  ['gcs', 'http://storage.googleapis.com'],
])('gives a token for %s not to %s', async (store, endpoint) => {
  const { code, stderr } = await backup(store, {}, endpoint)
  expect(code).toBe(1)
  expect(stderr).toMatch(/the identity of the pod would give it a token: name a Secret, or an https endpoint/)
})

/** Returns a token with the claims that the service compares. */
function tokenOfAzure(): string {
  const now = Math.floor(Date.now() / 1000)
  const claims = { aud: 'https://storage.azure.com', iss: 'https://sts.windows.net/tenant/', iat: now }
  const parts = [
    { alg: 'none', typ: 'JWT' },
    { ...claims, nbf: now - 60, exp: now + 3600 },
  ]
  return `${parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')}.x`
}

/** Answers as the server behind TLS does. */
async function forwarded(url: string, body: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = '', headers } = request
  const type = { 'content-type': headers['content-type'] ?? 'application/json' }
  const sent = body === '' ? {} : { body, headers: type }
  const answer = await fetch(new URL(request.url ?? '', url), { method, ...sent })
  for (const name of ['content-type', 'location'])
    if (answer.headers.has(name)) response.setHeader(name, answer.headers.get(name) ?? '')
  response.writeHead(answer.status)
  response.end(Buffer.from(await answer.arrayBuffer()))
}
