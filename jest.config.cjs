const { testTimeout } = require('./jest.preset.js');

/**
 * All unit and conformance tests in one run; each project also has a target of its own (`nx test
 * scheduler`).
 */
module.exports = {
  projects: [
    '<rootDir>/libs/*',
    '<rootDir>/apps/*',
    '<rootDir>/tools/bench',
    '<rootDir>/tools/chaos',
    '<rootDir>/examples/embed',
  ],
  testTimeout,
  testSequencer: '<rootDir>/tools/jest/sequencer.cjs',
  // A worker keeps the module graphs of the files that it has run (Node.js does not free the
  // contexts of ES modules). With a heap of a gigabyte the garbage collector takes most of the time.
  workerIdleMemoryLimit: '400MB',
};
