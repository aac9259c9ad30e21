const path = require('node:path');

/**
 * What every project's jest.config.cjs starts from: TypeScript as ES modules, straight from source.
 */
module.exports = {
  testEnvironment: 'node',
  testMatch: ['<rootDir>/src/**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '^.+\\.ts$': [
      'ts-jest',
      { useESM: true, tsconfig: path.join(__dirname, 'tsconfig.jest.json'), diagnostics: false },
    ],
  },
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
  testEnvironmentOptions: { customExportConditions: ['@cloudless/source', 'node', 'node-addons'] },
  transformIgnorePatterns: ['/node_modules/'],
  // How long a test may hang, no measure of speed: a flush takes seconds on a busy disk.
  testTimeout: 60_000,
};
