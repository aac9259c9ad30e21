module.exports = {
  preset: '../../jest.preset.js',
  displayName: 'e2e',
  testMatch: ['<rootDir>/src/**/*.e2e.ts'],
  testTimeout: 120_000,
};
