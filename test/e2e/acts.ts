import { type Act, CertificateSigningRequest, Deployment, Pod, reconciler, resource, z } from 'fairlead'

export const Shift = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shift',
  plural: 'shifts',
  spec: z.object({
    /** The label `shift` of the Pods to evict. */
    evict: z.string().optional(),
    /** The label `shift` of the Pods to bind, and their Node. */
    bind: z.object({ label: z.string(), node: z.string() }).optional(),
    scale: z.object({ name: z.string(), replicas: z.int32() }).optional(),
  }),
  status: z.object({ left: z.int32().optional(), waits: z.string().optional() }),
})

const Own = { ...Pod, selector: 'shift' } as const
const Scaled = { ...Deployment, byName: 'spec.scale.name' } as const

/** Evicts and binds Pods, and scales a Deployment of others. */
export const shift = reconciler({
  name: 'shift',
  for: Shift,
  related: [Own, Scaled],
  acts: [
    { ...Pod, act: 'Evict' },
    { ...Pod, act: 'Bind' },
    { ...Deployment, act: 'Scale' },
  ],
  backoff: { initialSeconds: 0.1, maxSeconds: 1 },
  reconcile({ object: { spec }, related, refused }) {
    const { evict, bind, scale } = spec
    const labelled = (label: string | undefined) =>
      related(Own).filter(({ metadata }) => metadata.labels?.['shift'] === label)
    const left = labelled(evict).filter(({ metadata }) => metadata.deletionTimestamp === undefined)
    const unbound = labelled(bind?.label).filter((pod) => pod.spec?.nodeName === undefined)
    const unscaled = related(Scaled).filter((one) => one.spec?.replicas !== scale?.replicas)
    return {
      act: [
        ...left.map((on): Act => ({ act: 'Evict', on })),
        ...unbound.map((on): Act => ({ act: 'Bind', on, node: bind?.node ?? '' })),
        ...unscaled.map((on): Act => ({ act: 'Scale', on, replicas: scale?.replicas ?? 0 })),
      ],
      status: { left: left.length, waits: refused(Own)[0]?.reason },
    }
  },
})

const signers = ['example.com/client']

/** Approves and denies what an annotation asks for, whatever the signer. */
export const approver = reconciler({
  name: 'approver',
  for: CertificateSigningRequest,
  acts: [
    { ...CertificateSigningRequest, act: 'Approve', signers },
    { ...CertificateSigningRequest, act: 'Deny', signers },
  ],
  backoff: { initialSeconds: 0.1, maxSeconds: 1 },
  reconcile({ object }) {
    const wanted = object.metadata.annotations?.['example.com/wants']
    if (object.status?.conditions !== undefined || (wanted !== 'Approve' && wanted !== 'Deny')) return undefined
    return { act: [{ act: wanted, on: object, reason: 'Checked', message: 'by the test' }] }
  },
})
