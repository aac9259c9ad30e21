// The files that must run alone on the machine. Run with --runInBand.
module.exports = {
  ...require('./jest.config.cjs'),
  displayName: 'e2e',
  testPathIgnorePatterns: require('./parallel-files.cjs').map((file) => `${file}$`),
};
