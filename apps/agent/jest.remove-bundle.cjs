const { rm } = require('node:fs/promises');

/** Removes the bundle of `jest.bundle.cjs`. */
module.exports = async function removeBundle() {
  const directory = process.env['CLOUDLESS_TEST_AGENT'];
  if (directory !== undefined) await rm(directory, { recursive: true, force: true });
};
