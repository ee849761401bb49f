import level from './level.js'

export const { PerigeeLevel } = level
