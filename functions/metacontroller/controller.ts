import { type KubeObject, kind, TerminalError, z } from 'fairlead'

const API = { group: 'metacontroller.k8s.io', version: 'v1alpha1' }

/** CompositeControllers of Metacontroller, as their users have applied them. */
export const CompositeController = kind({ ...API, kind: 'CompositeController', plural: 'compositecontrollers' })

export const DecoratorController = kind({ ...API, kind: 'DecoratorController', plural: 'decoratorcontrollers' })

const rule = { apiVersion: z.string().min(1), resource: z.string().min(1) }

const matchExpressions = z
  .array(
    z.strictObject({
      key: z.string().min(1),
      operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
      values: z.array(z.string()).optional(),
    }),
  )
  .optional()

const map = z.record(z.string(), z.string()).optional()

/** metav1.LabelSelector. */
export const labelSelector = z.strictObject({ matchLabels: map, matchExpressions })

const primary = z.strictObject({
  ...rule,
  labelSelector: labelSelector.optional(),
  ignoreStatusChanges: z.boolean().optional(),
})

const webhook = z.strictObject({
  url: z.string().optional(),
  path: z.string().optional(),
  service: z
    .strictObject({
      name: z.string().min(1),
      namespace: z.string().min(1),
      port: z.int().optional(),
      protocol: z.string().optional(),
    })
    .optional(),
  timeout: z.string().optional(),
  responseUnMarshallMode: z.enum(['loose', 'strict']).optional(),
  caBundle: z
    .strictObject({ inline: z.string().optional(), secretRef: z.unknown(), configMapRef: z.unknown() })
    .partial()
    .optional(),
  // It saves the hook work, and changes no answer: each call is made.
  etag: z.unknown().optional(),
  authorization: z.unknown().optional(),
  basicAuth: z.unknown().optional(),
  clientTLS: z.unknown().optional(),
})

const hook = z.strictObject({ version: z.enum(['v1', 'v2']).default('v1'), webhook: webhook.optional() })

const hooks = z
  .strictObject({
    sync: hook.optional(),
    finalize: hook.optional(),
    customize: hook.optional(),
    // Metacontroller has these fields, and does not read them.
    preUpdateChild: z.unknown().optional(),
    postUpdateChild: z.unknown().optional(),
  })
  .default({})

const statusCheck = z.strictObject({
  type: z.string(),
  status: z.string().optional(),
  reason: z.string().optional(),
})

const common = { resyncPeriodSeconds: z.int().optional(), endpointConfigs: z.unknown().optional(), hooks }

/** Fields that Metacontroller has and this does not know are refused: they may mean anything. */
const composite = z.strictObject({
  ...common,
  parentResource: primary.extend({
    revisionHistory: z.strictObject({ fieldPaths: z.array(z.string().min(1)).optional() }).optional(),
  }),
  childResources: z
    .array(
      z.strictObject({
        ...rule,
        updateStrategy: z
          .strictObject({
            method: z.enum(['OnDelete', 'Recreate', 'InPlace', 'RollingRecreate', 'RollingInPlace']).optional(),
            statusChecks: z.strictObject({ conditions: z.array(statusCheck).optional() }).optional(),
          })
          .optional(),
      }),
    )
    .default([]),
  generateSelector: z.boolean().default(false),
})

const decorator = z.strictObject({
  ...common,
  resources: z
    .array(
      primary.extend({
        annotationSelector: z.strictObject({ matchAnnotations: map, matchExpressions }).optional(),
      }),
    )
    .min(1),
  attachments: z
    .array(
      z.strictObject({
        ...rule,
        updateStrategy: z.strictObject({ method: z.enum(['OnDelete', 'Recreate', 'InPlace']).optional() }).optional(),
      }),
    )
    .default([]),
})

export type StatusCheck = z.output<typeof statusCheck>
export type LabelSelector = z.output<typeof labelSelector>
export type Webhook = z.output<typeof webhook>
export type Hook = z.output<typeof hook>
export type ResourceRule = z.output<typeof primary>
type CompositeSpec = z.output<typeof composite>
type DecoratorSpec = z.output<typeof decorator>

/** Throws a TerminalError, `NotOffered`, with each field that is not offered. */
export const compositeSpec = (controller: KubeObject): CompositeSpec =>
  checked(controller, composite, ({ parentResource, ...others }) =>
    faultsOf(others, isSelecting(parentResource) && 'spec.parentResource.labelSelector'),
  )

/** Throws as compositeSpec(). */
export const decoratorSpec = (controller: KubeObject): DecoratorSpec =>
  checked(controller, decorator, ({ resources, ...others }) => [
    ...resources.flatMap((one, index) =>
      resources.findIndex((other) => nameIn(other) === nameIn(one)) < index
        ? [`spec.resources[${index}] is ${nameIn(one)} once more`]
        : [],
    ),
    ...faultsOf(others, resources.some(isSelecting) && 'selectors in spec.resources'),
  ])

/** An empty selector selects all. */
const isSelecting = (one: ResourceRule & { annotationSelector?: object | undefined }): boolean =>
  [one.labelSelector, one.annotationSelector].some((selector) =>
    Object.values(selector ?? {}).some((part: object | undefined) => Object.keys(part ?? {}).length > 0),
  )

/** Without the version. */
const nameIn = ({ apiVersion, resource }: ResourceRule): string =>
  [resource, ...apiVersion.split('/').slice(0, -1)].join('.')

function checked<S extends z.ZodType>(
  controller: KubeObject,
  schema: S,
  faultsIn: (spec: z.output<S>) => string[],
): z.output<S> {
  const parsed = schema.safeParse(controller.spec)
  const faults = parsed.success
    ? faultsIn(parsed.data)
    : parsed.error.issues.map(({ path, message }) => `${['spec', ...path].join('.')}: ${message}`)
  if (!parsed.success || faults.length > 0) throw notOffered(controller, faults)
  return parsed.data
}

export const notOffered = ({ kind: of, metadata: { name } }: KubeObject, faults: readonly string[]): TerminalError =>
  new TerminalError(`${of} ${name} has what is not offered: ${faults.join('; ')}`, { reason: 'NotOffered' })

const NO_CREDENTIALS =
  'Secrets are not read for webhooks: let a network policy, a mesh or a proxy beside the webhook decide who may call it'

/** `selector`: the path of selectors of the objects. An object that stops to match would be finalized. */
const faultsOf = (
  { endpointConfigs, hooks: { sync, finalize, customize } }: Pick<CompositeSpec, 'endpointConfigs' | 'hooks'>,
  selector: string | false | undefined,
): string[] => [
  ...(endpointConfigs === undefined ? [] : [`spec.endpointConfigs: ${NO_CREDENTIALS}`]),
  ...(finalize !== undefined && selector
    ? [
        `spec.hooks.finalize beside ${selector}: leave one of them out; the hooks may answer without children for other objects`,
      ]
    : []),
  ...Object.entries({ sync, finalize, customize }).flatMap(([name, one]) =>
    one ? webhookFaults(one, `spec.hooks.${name}`) : [],
  ),
]

function webhookFaults({ webhook: given }: Hook, path: string): string[] {
  if (given === undefined) return [`${path} has no webhook`]
  const { url, service, path: where, caBundle, ...others } = given
  const isAddressed = url === undefined ? service !== undefined && where !== undefined : URL.canParse(url)
  return [
    ...(isAddressed ? [] : [`${path}.webhook needs an url, or service and path`]),
    ...(['authorization', 'basicAuth', 'clientTLS'] as const).flatMap((field) =>
      others[field] === undefined ? [] : [`${path}.webhook.${field}: ${NO_CREDENTIALS}`],
    ),
    ...(['secretRef', 'configMapRef'] as const).flatMap((field) =>
      caBundle?.[field] === undefined ? [] : [`${path}.webhook.caBundle.${field}: use inline`],
    ),
  ]
}
