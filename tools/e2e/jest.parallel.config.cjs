// The files that can run beside each other. Run with --maxWorkers=2.
module.exports = {
  ...require('./jest.config.cjs'),
  displayName: 'e2e-parallel',
  testMatch: require('./parallel-files.cjs'),
};
