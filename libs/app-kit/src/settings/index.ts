export { addSettingFlags, getEnvName, getFlagName, readSettingLayers } from './setting-layers.js';
export type { FlagTarget, SettingNames } from './setting-layers.js';
export { EXIT_FAILURE, EXIT_USAGE, describeFailure } from './describe-failure.js';
