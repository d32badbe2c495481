import { z } from 'zod'
import type { Act } from '#contracts'
import { resourceRef } from './forms.ts'

/* The acts that a function declares: requests to a subresource of an object. */

/** The subresource of each act, and the verb on it that the account needs. */
export const ACTS = {
  Evict: { subresource: 'eviction', verb: 'create' },
  Bind: { subresource: 'binding', verb: 'create' },
  Scale: { subresource: 'scale', verb: 'patch' },
  Approve: { subresource: 'approval', verb: 'patch' },
  Deny: { subresource: 'approval', verb: 'patch' },
} as const satisfies Record<Act['act'], { subresource: string; verb: string }>

const isOfPods = (act: Act['act']): boolean => act === 'Evict' || act === 'Bind'
const isOfRequests = (act: Act['act']): boolean => act === 'Approve' || act === 'Deny'

const podsAlone = 'Evict and Bind act on pods of the core group'
const signersNamed =
  'Approve and Deny act on certificatesigningrequests of certificates.k8s.io, and they alone need signers'

export const acted = z
  .object({
    ...resourceRef,
    act: z
      .enum(Object.keys(ACTS) as Act['act'][])
      .describe('The subresource: eviction, binding, scale, or approval of a CertificateSigningRequest.'),
    signers: z
      .array(
        z
          .string()
          .max(571)
          .regex(/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\/([^/*]+|\*)$/, 'the name of a signer, or example.com/*'),
      )
      .min(1)
      .max(64)
      .optional()
      .describe('The signers whose requests may be approved or denied: example.com/serving, or example.com/*.'),
    within: z
      .enum(['Namespace', 'Cluster'])
      .default('Namespace')
      .describe('Namespace: in the namespace of the primary, and cluster-scoped objects. Cluster: anywhere.'),
  })
  .refine(({ act, group, resource }) => !isOfPods(act) || (group === '' && resource === 'pods'), {
    path: ['act'],
    message: podsAlone,
  })
  .refine(
    ({ act, group, resource, signers }) =>
      isOfRequests(act)
        ? signers !== undefined && group === 'certificates.k8s.io' && resource === 'certificatesigningrequests'
        : signers === undefined,
    { path: ['signers'], message: signersNamed },
  )
  .meta({
    'x-kubernetes-validations': [
      { rule: "!(self.act in ['Evict', 'Bind']) || (self.group == '' && self.resource == 'pods')", message: podsAlone },
      { rule: "has(self.signers) == (self.act in ['Approve', 'Deny'])", message: signersNamed },
    ],
  })

/** A declared act. */
export type ActedResource = z.output<typeof acted>
