// All files. To run one file: jest --config tools/e2e/jest.config.cjs placement. `npm test` uses
// the configs for parallel and serial files instead.
module.exports = {
  preset: '../../jest.preset.js',
  displayName: 'e2e',
  testMatch: ['<rootDir>/src/**/*.e2e.ts'],
  testTimeout: 120_000,
};
