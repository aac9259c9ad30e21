// The files that need the machine for themselves: --runInBand.
module.exports = {
  ...require('./jest.config.cjs'),
  displayName: 'e2e',
  testPathIgnorePatterns: require('./parallel-files.cjs').map((file) => `${file}$`),
};
