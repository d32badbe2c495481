import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** One finished request, as the API server itself saw it. */
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
  /** As whom that user has made it; empty: as itself. */
  actedAs: string
  /** Epoch milliseconds. */
  receivedAt: number
}

/**
 * Requests that change something, and all that accounts of Fairlead and its functions make; what servers tell each other
 * about themselves is left out.
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

/** Flags of kube-apiserver. The log is written before the answer goes out, so nothing answered is missing from it. */
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

/** Those since the cluster started with `audit: true`. A line that a kill cut short is left out. */
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
