// The code of the link is in the fragment. It goes into the form, and out of the address and the history. The link may also be opened
// in a tab that shows the form already. The script does not send the form: a foreign page could open a link with a code of its own,
// and the browser would then act in another person's name.
'use strict';
{
  const form = document.getElementById('login');
  const fillIn = () => {
    const code = location.hash.slice(1);
    if (!form || !code || code === 'content') return;
    history.replaceState(null, '', location.pathname);
    form.elements.code.value = code;
    form.querySelector('button').focus();
  };
  addEventListener('hashchange', fillIn);
  fillIn();
}
