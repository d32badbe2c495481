import { UsageError } from '#host/exit'
import { demandFunctions, type Selection } from '#host/functions'
import { parseReference } from '#image'
import { functionsChart } from '#install'
import { writeFiles } from '../write-files.ts'

export interface ChartOptions extends Selection {
  to: string
  image: string
  module?: string
  name: string
  chartVersion: string
}

/** Writes a chart of the functions into a folder, and returns the paths of its files. */
export async function generateChart(options: ChartOptions): Promise<string[]> {
  const { to, image, module, name, chartVersion: version } = options
  if (!/^\d+\.\d+\.\d+(?:[-+][\w.+-]+)?$/.test(version))
    throw new UsageError(`"${version}" is not a version of a chart: write it like 1.2.0`)
  const { registry, repository, tag = 'latest', digest = '' } = parseReference(image)
  const functions = await demandFunctions(options)
  const files = await functionsChart(functions, {
    name,
    version,
    description: `Functions of Fairlead: ${functions.map((one) => one.name).join(', ')}`,
    image: { repository: `${registry}/${repository}`, tag, digest },
    modules: module === undefined ? [] : [module],
    builtin: options.builtin,
  })
  return writeFiles(to, files)
}
