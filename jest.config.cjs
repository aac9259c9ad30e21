const { testTimeout } = require('./jest.preset.js');

/**
 * All unit and conformance tests in one run; each project also has a target of its own (`nx test
 * scheduler`).
 */
module.exports = {
  projects: ['<rootDir>/libs/*', '<rootDir>/apps/*', '<rootDir>/tools/bench'],
  testTimeout,
};
