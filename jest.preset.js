const path = require('node:path');

/**
 * What every project's jest.config.cjs starts from: TypeScript as ES modules, straight from source.
 */
module.exports = {
  testEnvironment: 'node',
  testMatch: ['<rootDir>/src/**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: { '\\.[jt]s$': path.join(__dirname, 'tools/jest/transform.cjs') },
  moduleNameMapper: {
    '^(\\.{1,2}/(?!.*node_modules/).*)\\.js$': '$1',
    // A fixed seed, and numbers of runs that the environment scales.
    '^fast-check$': path.join(__dirname, 'tools/jest/fast-check.mjs'),
  },
  testEnvironmentOptions: { customExportConditions: ['@cloudless/source', 'node', 'node-addons'] },
  // Of the packages, those whose code the tests run most, for the built-in objects.
  transformIgnorePatterns: ['/node_modules/(?!@bufbuild/|@connectrpc/)'],
  // How long a test may hang, no measure of speed: a flush takes seconds on a busy disk.
  testTimeout: 60_000,
};
