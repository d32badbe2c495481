import { yamlOf } from '../yaml.ts'

export interface ChartFile {
  name: string
  /** The semantic version of the chart and of its contents. */
  version: string
  description: string
}

/** Returns Chart.yaml. */
export const chartFile = ({ name, version, description }: ChartFile): Promise<string> =>
  yamlOf({
    apiVersion: 'v2',
    name,
    description,
    type: 'application',
    version,
    appVersion: version,
    kubeVersion: '>=1.30.0-0',
    annotations: { 'artifacthub.io/category': 'integration-delivery', 'artifacthub.io/operator': 'true' },
  })
