import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import type { ConversionClient } from '#sdk'
import { webhookCertificates } from '../../../cli/install/webhook-certificates.ts'
import { startFairlead } from '../../support/fairlead.ts'
import { goProgram } from '../../support/go-program.ts'
import { until } from '../../support/wait.ts'
import { type OperatorProcess, startProcess } from '../beside/process.ts'
import { KUBELET_MS, mount, rotate, USED_MS, type WebhookPlace } from './place.ts'
import { NAMESPACE, Plain, Site } from './site.ts'

export const SIDES = ['controller-runtime', 'Fairlead'] as const
export type Side = (typeof SIDES)[number]

/** The webhook of one side. */
export interface SideOfWebhook {
  start: (port: number) => OperatorProcess
  /** Makes the API server call the processes, which are there. */
  install: () => Promise<void>
  /** A new authority, and certificates of it. */
  rotate: () => Promise<void>
  /** Where a process is asked about a write. */
  validatePath: string
}

export const MODULE = fileURLToPath(new URL('./site.ts', import.meta.url))
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
export const DEFINITION = `${DEFINITIONS}/${Site.resource}.${Site.group}`
const CONFIGURATION =
  '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fairlead-sites.webhooks.bench.test'
const applying = { fieldManager: 'bench', force: true }
/** As in the pods: Node.js gives a heap half of the memory limit of its container. */
const NODE_OPTIONS = '--max-old-space-size=256 --max-semi-space-size=4'

export async function sideOf(side: Side, place: WebhookPlace): Promise<SideOfWebhook> {
  const webhook = side === 'Fairlead' ? ofFairlead(place) : await ofOperator(place)
  return {
    ...webhook,
    async install() {
      await place.kube.apply(`${DEFINITIONS}/${Plain.resource}.${Plain.group}`, Plain.crd(), applying)
      await webhook.install()
      for (const { group, version, resource } of [Plain, Site])
        await until(() => place.kube.list(resourcePath({ group, version, resource }, NAMESPACE)).next())
    },
  }
}

function ofFairlead(place: WebhookPlace): SideOfWebhook {
  const { certificates, run } = place
  return {
    validatePath: '/validate',
    start: (port) =>
      startFairlead(['admit', '-f', MODULE, '--tls', certificates, '--address', `127.0.0.1:${port}`], {
        LOG_LEVEL: 'info',
        NODE_OPTIONS,
      }),
    install: async () => void (await run('install', '-f', MODULE)),
    rotate: () => rotate(place, 'authority'),
  }
}

/** As kubebuilder scaffolds it. Its certificates are changed as cert-manager does: what is trusted and what is shown, at once. */
async function ofOperator({ kube, kubeconfig, certificates, client }: WebhookPlace): Promise<SideOfWebhook> {
  const program = await goProgram('operator', fileURLToPath(new URL('.', import.meta.url)))
  const validatePath = '/validate-webhooks-bench-test-v1-site'
  const install = async (caBundle?: string) => {
    const trusting = (path: string) => ({ ...client(path), ...(caBundle !== undefined && { caBundle }) })
    await kube.apply(DEFINITION, Site.crd(trusting('/convert')), applying)
    await kube.apply(CONFIGURATION, scaffolded(trusting(validatePath)), applying)
  }
  return {
    validatePath,
    start: (port) =>
      startProcess(program, ['--port', String(port), '--cert-dir', certificates], { KUBECONFIG: kubeconfig }),
    install: () => install(),
    async rotate() {
      const { leaf } = webhookCertificates(new Map(), new Date())
      if (leaf === undefined) throw new Error('there is no certificate')
      await install(leaf.data['ca.crt'])
      await sleep(KUBELET_MS)
      await mount(certificates, leaf)
      await sleep(USED_MS)
    },
  }
}

const scaffolded = (clientConfig: ConversionClient): KubeObject & { webhooks: object[] } => ({
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'ValidatingWebhookConfiguration',
  metadata: { name: CONFIGURATION.split('/').at(-1) ?? '' },
  webhooks: [
    {
      name: `validate.${Site.resource}.${Site.group}`,
      clientConfig,
      admissionReviewVersions: ['v1'],
      sideEffects: 'None',
      failurePolicy: 'Fail',
      rules: [
        {
          apiGroups: [Site.group],
          apiVersions: [Site.version],
          operations: ['CREATE', 'UPDATE'],
          resources: [Site.resource],
        },
      ],
    },
  ],
})
