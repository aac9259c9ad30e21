module.exports = { preset: '../../jest.preset.js', displayName: 'runtime-cri' };
