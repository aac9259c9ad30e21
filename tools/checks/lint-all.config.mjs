// The rules of eslint.config.mjs for a run over all files: one program of the type checker has all
// modules, where the project service would make two for each project and check the sources of a
// library again in each of them. To lint a few files, and in editors, the project service is quicker.
import { join, resolve } from 'node:path';
import config from '../../eslint.config.mjs';

const root = resolve(import.meta.dirname, '../..');

export default [
  ...config,
  {
    files: ['**/*.ts'],
    languageOptions: {
      parserOptions: { projectService: false, project: [join(root, 'tsconfig.lint.json')] },
    },
  },
];
