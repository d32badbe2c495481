import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** One finished request, from the audit log of the API server. */
export interface AuditedRequest {
  verb: string
  /** HTTP status. */
  code: number
  /** With the subresource: `pods`, `ats/status`. */
  resource: string
  namespace: string
  name: string
  userAgent: string
  user: string
  /** The user that the request impersonated; empty without impersonation. */
  actedAs: string
  /** Epoch milliseconds. */
  receivedAt: number
}

/**
 * Logs writes, and all requests of the accounts of Fairlead and its functions. Leaves out the writes with which servers
 * report their own state.
 */
const POLICY = {
  apiVersion: 'audit.k8s.io/v1',
  kind: 'Policy',
  omitStages: ['RequestReceived', 'ResponseStarted'],
  rules: [
    { level: 'None', resources: [{ group: 'coordination.k8s.io', resources: ['leases'] }] },
    { level: 'Metadata', userGroups: ['system:serviceaccounts:fairlead-system'] },
    { level: 'Metadata', verbs: ['create', 'update', 'patch', 'delete', 'deletecollection'] },
    { level: 'None' },
  ],
}

function auditLogOf(dir: string): string {
  return join(dir, 'log', 'audit.log')
}

/**
 * Returns flags for kube-apiserver. It writes the log before it answers, so the log contains every answered request.
 */
export async function auditFlags(dir: string): Promise<string[]> {
  const policyFile = join(dir, 'audit-policy.json')
  await writeFile(policyFile, JSON.stringify(POLICY))
  return [`--audit-policy-file=${policyFile}`, `--audit-log-path=${auditLogOf(dir)}`, '--audit-log-mode=blocking']
}

interface AuditEvent {
  verb: string
  userAgent?: string
  user?: { username?: string }
  impersonatedUser?: { username?: string }
  objectRef?: { resource?: string; subresource?: string; namespace?: string; name?: string }
  responseStatus?: { code?: number }
  requestReceivedTimestamp: string
}

/**
 * Returns the requests since the cluster started with `audit: true`. Leaves out an incomplete last line after a kill.
 */
export async function readAudit(dir: string): Promise<AuditedRequest[]> {
  const lines = (await readFile(auditLogOf(dir), 'utf8')).split('\n')
  return lines.filter((line) => line.endsWith('}')).map((line) => summarize(JSON.parse(line) as AuditEvent))
}

function summarize({
  verb,
  userAgent,
  user,
  impersonatedUser,
  objectRef,
  responseStatus,
  requestReceivedTimestamp,
}: AuditEvent): AuditedRequest {
  const { resource = '', subresource, namespace = '', name = '' } = objectRef ?? {}
  return {
    verb,
    code: responseStatus?.code ?? 0,
    resource: subresource ? `${resource}/${subresource}` : resource,
    namespace,
    name,
    userAgent: userAgent ?? '',
    user: user?.username ?? '',
    actedAs: impersonatedUser?.username ?? '',
    receivedAt: Date.parse(requestReceivedTimestamp),
  }
}
