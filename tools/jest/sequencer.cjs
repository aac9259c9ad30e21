// The order of the spec files in a run of all projects.
//
// Without times of an earlier run, as in CI, jest starts large files first. A small file that runs
// long then starts among the last, and all workers but one wait for it at the end.
const TestSequencer = require('@jest/test-sequencer').default;

/** Small spec files that take more than 30 s of CPU in one thread. */
const LONG_FILES = ['/libs/simulation/src/bug-catalogue/bug-catalogue.spec.ts'];

module.exports = class extends TestSequencer {
  async sort(tests) {
    const sorted = await super.sort(tests);
    const isLong = ({ path }) => LONG_FILES.some((file) => path.endsWith(file));
    return [...sorted.filter(isLong), ...sorted.filter((test) => !isLong(test))];
  }
};
module.exports.LONG_FILES = LONG_FILES;
