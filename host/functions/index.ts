export { readFunctionAccess } from './function-access.ts'
export { demandFunctions, functionNamed, loadFunctions, namableFunctions, type Selection } from './functions.ts'
