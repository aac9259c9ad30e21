module.exports = {
  preset: '../../jest.preset.js',
  displayName: 'agent',
  globalSetup: '<rootDir>/jest.bundle.cjs',
  globalTeardown: '<rootDir>/jest.remove-bundle.cjs',
};
